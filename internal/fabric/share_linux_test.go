//go:build amd64 || arm64

package fabric

import (
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbkernel"
	"github.com/stretchr/testify/require"
)

// sharers returns a function that parses the spec of a process of a line of two nodes. It is removed after the test.
func sharers(t *testing.T) func(node int, options string) *spec.Spec {
	name := fmt.Sprintf("share-%d-%08x", os.Getpid(), rand.Uint32())
	t.Cleanup(func() { require.NoError(t, spec.Remove(name)) })
	return func(node int, options string) *spec.Spec {
		s, err := spec.Parse(fmt.Sprintf("line:%s?node=%d&nodes=2&window=131072%s", name, node, options))
		require.NoError(t, err)
		return s
	}
}

// sharer opens the fabric as a process that owns the links when nobody else does.
func sharer(t *testing.T, s *spec.Spec) *Fabric {
	t.Helper()
	f, err := Open(s, takesOver)
	require.NoError(t, err)
	t.Cleanup(f.Close)
	return f
}

// All processes of a node say the same. The first owns the links, and when it ends, one of the others does.
func TestProcessesShareLinks(t *testing.T) {
	leak.Check(t)
	spec := sharers(t)
	other := sharer(t, spec(2, ""))
	first := sharer(t, spec(1, "&share=1"))
	require.True(t, first.OwnsLinks())
	members := []*Fabric{sharer(t, spec(1, "&share=1")), sharer(t, spec(1, "&share=1"))}
	var ups []int
	for _, f := range members {
		require.False(t, f.OwnsLinks())
		reaches(t, f, 2)
		ups = append(ups, f.status(false).Links[0].Ups)
	}
	first.Close()
	for i, f := range members {
		require.Eventually(t, func() bool { l := f.status(false).Links[0]; return l.State == status.Up && l.Ups > ups[i] }, testTimeout, firstPause)
		reaches(t, f, 2)
	}
	reaches(t, other, 1)
	require.Zero(t, other.Refused().Count)
}

// Of processes that begin at the same moment one owns the links, and each is in the fabric.
func TestManyProcessesShareLinks(t *testing.T) {
	leak.Check(t)
	spec := sharers(t)
	all := make([]*Fabric, 4)
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i] = sharer(t, spec(1, "&share=1")) })
	}
	wg.Wait()
	owners := 0
	for _, f := range all {
		if f.OwnsLinks() {
			owners++
		}
		require.Zero(t, f.Refused().Count)
	}
	require.Equal(t, 1, owners)
}

// A process that may not have the ends of the wires is a member, and reaches others when there is an owner. One with
// ends of its own owns the links, or fails.
func TestWhoMayNotShareLinks(t *testing.T) {
	leak.Check(t)
	s := sharers(t)
	sharer(t, s(2, ""))
	forbidden := s(1, "&share=1&right=ntb:0000:00:00.0")
	forbidden.AttachBridge = func(string, ntbkernel.Options) (spec.BridgeEnd, error) {
		return nil, fmt.Errorf("open it: %w", syscall.EACCES)
	}
	poor := sharer(t, forbidden)
	require.False(t, poor.OwnsLinks())
	sharer(t, s(1, "&share=1")) // owns the links at once, or when poor has found out again that it may not
	reaches(t, poor, 2)
	supplied := s(1, "&share=1")
	supplied.Attach = func(spec.Wire) (ntb.Attachment, error) { return nil, nil }
	_, err := Open(supplied, takesOver)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
}
