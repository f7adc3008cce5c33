//go:build amd64 || arm64

package fabric

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
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

// kernel stands for the kernels of two machines with a bridge between them. One process at a time has an end.
type kernel struct {
	addresses [2]string // immutable; two machines share the directory of fabrics here, so they differ
	ends      [2]ntb.Attachment

	mu    sync.Mutex
	taken [2]bool // guarded by mu
}

func newKernel(t *testing.T) *kernel {
	k := &kernel{}
	var err error
	k.ends[0], k.ends[1], err = fixedEnds(t.TempDir(), 2<<20)
	require.NoError(t, err)
	bus := rand.IntN(1 << 15)
	for i := range k.addresses {
		k.addresses[i] = fmt.Sprintf("%04x:00:%02x.0", bus, i)
		s, err := spec.Parse("ntb:" + k.addresses[i])
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, k.ends[i].Close())
			require.NoError(t, spec.Remove(s.Name))
		})
	}
	return k
}

// kernelEnd is an end of the bridge that a process has until Close.
type kernelEnd struct {
	borrowed
	kernel *kernel
	side   int
}

func (e *kernelEnd) Node(context.Context) (int, error) { return e.side + 1, nil }

func (e *kernelEnd) Close() error {
	err := e.borrowed.Close()
	e.kernel.mu.Lock()
	defer e.kernel.mu.Unlock()
	e.kernel.taken[e.side] = false
	return err
}

func (k *kernel) attach(side int) (spec.BridgeEnd, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.taken[side] {
		return nil, ntb.ErrInUse
	}
	k.taken[side] = true
	return &kernelEnd{borrowed: borrowed{Attachment: k.ends[side]}, kernel: k, side: side}, nil
}

// spec returns the spec of a process of one of the machines.
func (k *kernel) spec(t *testing.T, side int, options string) *spec.Spec {
	s, err := spec.Parse("ntb:" + k.addresses[side] + "?window=131072" + options)
	require.NoError(t, err)
	s.AttachBridge = func(address string, o ntbkernel.Options) (spec.BridgeEnd, error) {
		require.Equal(t, k.addresses[side], address)
		require.Equal(t, 131072, o.Window)
		return k.attach(side)
	}
	return s
}

// process opens the fabric as a process of one of the machines.
func (k *kernel) process(t *testing.T, side int, options string) *Fabric {
	t.Helper()
	f, err := Open(k.spec(t, side, options), func(*Fabric) {})
	require.NoError(t, err)
	t.Cleanup(f.Close)
	return f
}

// reaches waits until a process has a way to node.
func reaches(t *testing.T, f *Fabric, node int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	_, err := f.peer(ctx, node, 0)
	require.NoError(t, err)
}

// Two machines whose processes all use the fabric "ntb". The first process of a machine has the bridge. Processes
// that start later are its members.
func TestABridgeJoinsTwoMachines(t *testing.T) {
	leak.Check(t)
	k := newKernel(t)
	first, other := k.process(t, 0, ""), k.process(t, 1, "")
	member, settled := k.process(t, 0, "&lanes=1"), k.process(t, 1, "&node=2")
	for i, f := range []*Fabric{first, other, member, settled} {
		require.Equal(t, i < 2, f.OwnsLinks())
		require.Equal(t, i%2+1, f.node.ID().Host())
		reaches(t, f, 2-i%2)
	}
	// The member goes on when another process has the bridge.
	first.Close()
	again := k.process(t, 0, "")
	require.True(t, again.OwnsLinks())
	require.Eventually(t, func() bool { return len(membersOf(again)) == 1 }, testTimeout, firstPause)
	reaches(t, member, 2)
	reaches(t, other, 1)
}

// takesOver has a process own the links when their owner has ended.
func takesOver(f *Fabric) {
	f.OnTakeover(func(s *spec.Spec) (func(), error) {
		own, err := Open(s, func(*Fabric) {})
		if err != nil {
			return nil, err
		}
		return own.Close, nil
	})
}

// The process that has the bridge ends. Of its members one has it then, and all reach the other machine again.
func TestAMemberInheritsTheBridge(t *testing.T) {
	leak.Check(t)
	k := newKernel(t)
	other := k.process(t, 1, "")
	come := func() *Fabric {
		f, err := Open(k.spec(t, 0, ""), takesOver)
		require.NoError(t, err)
		t.Cleanup(f.Close)
		reaches(t, f, 2)
		return f
	}
	owner := come()
	for n := range 3 {
		var members []*Fabric
		var ups []int
		for range n/2 + 1 { // two in the last round, of which one has the bridge, by chance
			members = append(members, come())
		}
		for _, f := range members {
			ups = append(ups, f.status(false).Links[0].Ups)
		}
		owner.Close()
		for i, f := range members {
			require.Eventually(t, func() bool { l := f.status(false).Links[0]; return l.State == status.Up && l.Ups > ups[i] }, testTimeout, firstPause)
			reaches(t, f, 2)
		}
		reaches(t, other, 1)
		for _, f := range members[1:] {
			f.Close()
		}
		owner = members[0]
	}
	owner.Close()
	k.mu.Lock()
	defer k.mu.Unlock()
	require.Equal(t, [2]bool{false, true}, k.taken, "the last one has left the bridge")
}

// Many processes begin at the same moment. One has the bridge, and each is in the fabric.
func TestManyProcessesComeToABridge(t *testing.T) {
	leak.Check(t)
	k := newKernel(t)
	all := make([]*Fabric, 4)
	errs := make([]error, len(all))
	specs := make([]*spec.Spec, len(all))
	for i := range specs {
		specs[i] = k.spec(t, 0, "")
	}
	var wg sync.WaitGroup
	for i := range all {
		wg.Go(func() { all[i], errs[i] = Open(specs[i], func(*Fabric) {}) })
	}
	wg.Wait()
	require.NoError(t, errors.Join(errs...))
	owners := 0
	for _, f := range all {
		if f.OwnsLinks() {
			owners++
		}
	}
	require.Equal(t, 1, owners)
	for _, f := range all {
		f.Close()
	}
}

// The number of a node is what the kernel says, or a process of the node that has the bridge.
func TestABridgeIsSettled(t *testing.T) {
	leak.Check(t)
	k := newKernel(t)
	for _, taken := range []bool{false, true} {
		s, err := k.spec(t, 1, "").Settled(t.Context())
		require.NoError(t, err)
		require.Equal(t, 2, s.Node)
		for w := range s.Wires() {
			require.Equal(t, spec.Left, w.Side)
			a, err := s.AttachWire(w)
			if taken {
				require.ErrorIs(t, err, ntb.ErrInUse)
				continue
			}
			require.NoError(t, err)
			require.NoError(t, a.Close())
		}
		require.Equal(t, "line:"+s.Name+"?node=2&window=131072", s.Member())
		k.process(t, 1, "") // it has the bridge from here on
	}
}

// A number that is given must be that of the other processes of the host, and devices are the bridge's.
func TestWhatABridgeRefuses(t *testing.T) {
	leak.Check(t)
	k := newKernel(t)
	s := k.spec(t, 0, "")
	s.Attach = func(spec.Wire) (ntb.Attachment, error) { return nil, nil }
	_, err := Open(s, func(*Fabric) {})
	require.ErrorIs(t, err, syscall.EINVAL)
	s = k.spec(t, 0, "")
	s.AttachBridge = func(string, ntbkernel.Options) (spec.BridgeEnd, error) {
		return nil, fmt.Errorf("none: %w", syscall.ENODEV)
	}
	_, err = Open(s, func(*Fabric) {})
	require.ErrorIs(t, err, syscall.ENODEV)
	_, err = s.Settled(t.Context())
	require.ErrorIs(t, err, syscall.ENODEV)

	owner, err := spec.Parse("line:" + s.Name + "?node=1&nodes=2")
	require.NoError(t, err)
	f, err := Open(owner, func(*Fabric) {})
	require.NoError(t, err)
	defer f.Close()
	member := k.process(t, 0, "")
	require.False(t, member.OwnsLinks(), "a process without the bridge owns the links")
}
