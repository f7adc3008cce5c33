package ring

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// peersOver makes peers of nodes a and b over a tunnel, each end in a device of wrap's.
func (f *fabric) peersOver(t *testing.T, a, b int, wrap func(ntb.Device) ntb.Device) (pa, pb *link.Peer) {
	t.Helper()
	x, y := f.tunnels(t, a, b)
	other := make(chan *link.Peer)
	go func() {
		p, err := f.nodes[b-1].Up(within(t), wrap(y))
		if err != nil {
			t.Error(err)
		}
		other <- p
	}()
	pa, err := f.nodes[a-1].Up(within(t), wrap(x))
	require.NoError(t, err)
	pb = <-other
	require.NotNil(t, pb)
	return pa, pb
}

type notedOn struct{ c chan link.Event }

func (n notedOn) Notified(e link.Event) { n.c <- e }

// What a tunnel can do is used through a device around it.
func TestTheAbilitiesOfATunnelSurviveADeviceAroundIt(t *testing.T) {
	leak.Check(t)
	o := small(4)
	o.Topology = Line
	f := newPlainFabric(t, o)
	var orders atomic.Int32
	pa, pb := f.peersOver(t, 1, 3, func(d ntb.Device) ntb.Device { return ordersOf{d, &orders} })

	// Notifications arrive, and no goroutine makes a round trip of its own for them.
	on := notedOn{make(chan link.Event, 1)}
	slot, err := pb.Attach(on)
	require.NoError(t, err)
	for i := range 10 {
		pa.Notify(slot, link.Data)
		require.Equal(t, link.Data, <-on.c, i)
	}
	require.NoError(t, pa.Send(link.ServiceSDP, []byte("one")))
	s := serviceOf(f.nodes[2])
	s.wait(t, func() bool { return len(s.messages) == 1 })
	require.Zero(t, orders.Load(), "Order was called")

	// A waiter sees words arrive.
	woken := make(chan struct{}, 1)
	w := &ntb.Watch{Lines: [2]int{5, 5}, Wake: func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}}
	pb.Watch(w)
	remote := pa.Remote()
	remote.Publish64(5*64, 7)
	<-woken
	require.EqualValues(t, 7, ntb.Load64(pb.Local(), 5*64))
	pb.Unwatch(w)

	// Data waits where words do not, and arrives.
	turn, woke := newTurn()
	n := 0
	for n+512 <= remote.Len() && pa.TryWrite(&remote, n, make([]byte, 512), turn) == 512 {
		n += 512
	}
	require.Less(t, n, remote.Len(), "there is always room")
	for !pa.Room(turn) {
		<-woke
	}
	pa.Leave(turn)
	remote.Publish64(0, 9)
	pa.Deliver(time.Minute)
	require.EqualValues(t, 9, ntb.Load64(pb.Local(), 0))
}

// ordersOf counts the calls of Order.
type ordersOf struct {
	ntb.Device
	n *atomic.Int32
}

func (c ordersOf) Order() { c.n.Add(1); c.Device.Order() }
