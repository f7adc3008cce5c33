package sdp

import (
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// Fabrics that are opened at the same moment in the same words share one membership, or one
// error.
func TestHostsThatAreOpenedAtOnceShareAFabric(t *testing.T) {
	leak.Check(t)
	const n = 8
	open := func(spec string) (hosts [n]*Fabric, errs [n]error) {
		var all sync.WaitGroup
		for i := range n {
			all.Go(func() { hosts[i], errs[i] = Open(spec) })
		}
		all.Wait()
		return hosts, errs
	}
	const spec = "line:opened-at-once?backend=mem&node=1&nodes=2"
	for range 20 {
		hosts, errs := open(spec)
		taken, err := Open(spec + "&spin=0") // the same node in other words
		require.Nil(t, taken)
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		_, refused := open(spec + "&spin=0")
		for i, f := range hosts {
			require.NoError(t, errs[i])
			require.Same(t, hosts[0].stack, f.stack)
			require.ErrorIs(t, refused[i], syscall.EADDRINUSE)
		}
		for _, f := range hosts {
			require.NoError(t, f.Close())
		}
	}
	stacks.mu.Lock()
	defer stacks.mu.Unlock()
	for name := range stacks.open {
		require.NotContains(t, name, "opened-at-once")
	}
}

// deadDevice is a device whose link ends for want of memory before it is up.
type deadDevice struct{ ntb.Device }

func (deadDevice) WaitDoorbell(int) error { return syscall.ENOBUFS }

// A dial with a deadline whose link cannot be made fails with the link's error, also where
// that is the one of a full window.
func TestALinkThatFailsForWantOfMemory(t *testing.T) {
	f, err := OpenWith("mem:test", Devices{
		Wrap: func(a, b ntb.Device) (ntb.Device, ntb.Device) { return deadDevice{a}, deadDevice{b} },
	})
	require.NoError(t, err)
	defer f.Close()
	ln, err := f.Listen("sdp", "localhost:0")
	require.NoError(t, err)
	defer ln.Close()
	_, err = (&Dialer{Fabric: f, Timeout: time.Minute}).Dial("sdp", ln.Addr().String())
	require.ErrorIs(t, err, syscall.ENOBUFS)
	require.IsType(t, new(net.OpError), err)
}

// Bridges lead from a node to its neighbours. Where there are none, or another process owns the
// links, there is nothing to attach them to.
func TestBridgesNeedAnOwnerOfLinks(t *testing.T) {
	for _, name := range []string{"mem:test", "shm:test", "ring:test?node=1"} {
		_, err := OpenWith(name, Devices{Attach: func(Wire) (ntb.Attachment, error) { panic("it has no wire") }})
		require.ErrorIs(t, err, syscall.EINVAL)
		require.ErrorContains(t, err, "with node=I and nodes=N")
	}
	why := errors.New("no such function")
	_, err := OpenWith("ring:test?node=2&nodes=3&backend=mem", Devices{
		Attach: func(w Wire) (ntb.Attachment, error) {
			require.Equal(t, Wire{Number: 1, Node: 2, Neighbour: 1, Side: SideLeft}, w)
			return nil, why
		},
	})
	require.ErrorIs(t, err, why)
	require.ErrorContains(t, err, "attach the wire to node1")
}
