//go:build linux && (amd64 || arm64)

package fabric

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// nextVersion is a device whose user has the next version of the link. What it says is one
// more than what it is told to say, and what it hears is one less, so that its user counts
// itself as this version.
type nextVersion struct{ ntb.Device }

func (d nextVersion) SetPeerSpad(i int, v uint32) {
	if i == 0 {
		v++
	}
	d.Device.SetPeerSpad(i, v)
}

func (d nextVersion) Spad(i int) uint32 {
	v := d.Device.Spad(i)
	if i == 0 && v != 0 && v != ^uint32(0) {
		v--
	}
	return v
}

// The process that dials gets an error, the one that is dialled counts it. Both say both
// versions.
func TestAProcessOfAnotherVersionIsCounted(t *testing.T) {
	for name, c := range map[string]struct {
		dial func(*testing.T, cable)
		why  string
	}{
		"link": {func(t *testing.T, c cable) {
			dev, err := c.bridge(1<<20, 1)
			require.NoError(t, err)
			n := link.NewNode(link.MakeID(1, 2))
			defer n.Close()
			_, err = n.Up(t.Context(), nextVersion{dev})
			require.ErrorIs(t, err, link.ErrVersion)
			require.ErrorContains(t, err, fmt.Sprintf("this side speaks %d, the peer %d", link.Version, link.Version-1))
		}, fmt.Sprintf("this side speaks %d, the peer %d", link.Version, link.Version+1)},
		"cable": {func(t *testing.T, c cable) {
			defer c.Close()
			_, err := c.Write([]byte("ntb-shm\n\x09\x00\x00\x00"))
			require.NoError(t, err)
			answer := make([]byte, 12)
			_, files, err := c.(*shmCable).ReadFiles(answer, 2)
			require.NoError(t, err)
			unixsock.Discard(os.Geteuid(), files...)
			require.Equal(t, "ntb-shm\n", string(answer[:8]))
		}, "the peer has version 9"},
	} {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			spec, err := spec.Parse("shm:" + ownName(t))
			require.NoError(t, err)
			var both [2]*Fabric
			for i := range both {
				both[i], err = Open(spec, func(*Fabric) {})
				require.NoError(t, err)
				defer both[i].Close()
			}
			f, other := both[0], both[1]
			cable, err := other.registry.connect(t.Context(), f.Host(), f.Node().ID().Process())
			require.NoError(t, err)
			answer, release, err := greeting.Ask(t.Context(), cable, other.greeting(greeting.WantProcess))
			require.NoError(t, err)
			require.True(t, release())
			require.Empty(t, answer.Refused)
			c.dial(t, cable)
			require.Eventually(t, func() bool { return f.Refused().Count == 1 }, testTimeout, time.Millisecond)
			require.Contains(t, f.Refused().Last, c.why)
		})
	}
}
