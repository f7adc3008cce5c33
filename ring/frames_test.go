package ring

import (
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// peersOver makes peers of nodes a and b over a tunnel.
func (f *fabric) peersOver(t *testing.T, a, b int) (pa, pb *link.Peer) {
	t.Helper()
	x, y := f.tunnels(t, a, b)
	pa, err := f.nodes[a-1].UpOver(x, y.router.node.id)
	require.NoError(t, err)
	pb, err = f.nodes[b-1].UpOver(y, x.router.node.id)
	require.NoError(t, err)
	return pa, pb
}

type notedOn struct{ c chan link.Event }

func (n notedOn) Notified(e link.Event) { n.c <- e }

func TestPeersUseWhatFramesCanDo(t *testing.T) {
	leak.Check(t)
	o := small(4)
	o.Topology = Line
	f := newPlainFabric(t, o)
	pa, pb := f.peersOver(t, 1, 3)
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

	// A waiter sees words arrive.
	woken := make(chan struct{}, 1)
	w := &link.Watch{Lines: [2]int{5, 5}, Wake: func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}}
	pb.Frames().Watch(w)
	remote := pa.Remote()
	remote.Publish64(5*64, 7)
	<-woken
	require.EqualValues(t, 7, ntb.Load64(pb.Local(), 5*64))
	pb.Frames().Unwatch(w)

	// Data waits where words do not, and arrives.
	turn, woke := newTurn()
	n := 0
	for n+512 <= remote.Len() && pa.Frames().Data(remote.Offset()+n, make([]byte, 512), turn) == 512 {
		n += 512
	}
	require.Less(t, n, remote.Len(), "there is always room")
	for !pa.Frames().Room(turn) {
		<-woke
	}
	pa.Frames().Leave(turn)
	remote.Publish64(0, 9)
	pa.Frames().Arrived(time.Minute)
	require.EqualValues(t, 9, ntb.Load64(pb.Local(), 0))
}

// A side that is up may send before the other one is: nothing is exchanged but what opens the tunnel.
func TestAPeerSendsBeforeTheOtherSideIsUp(t *testing.T) {
	leak.Check(t)
	o := small(3)
	o.Topology = Line
	f := newPlainFabric(t, o)
	x, y := f.tunnels(t, 1, 3)
	pa, err := f.nodes[0].UpOver(x, y.router.node.id)
	require.NoError(t, err)
	require.NoError(t, pa.Send(link.ServiceSDP, []byte("early")))
	x.settle()
	s := serviceOf(f.nodes[2])
	s.mu.Lock()
	require.Empty(t, s.messages)
	s.mu.Unlock()
	_, err = f.nodes[2].UpOver(y, x.router.node.id)
	require.NoError(t, err)
	s.wait(t, func() bool { return len(s.messages) == 1 })
}

// A process that was asked for a tunnel finds that the one that asked has given up.
func TestAPeerEndsWhoseAskerHasGivenUp(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(4))
	x, open := asked(f)
	r := f.nodes[2].router
	x.Drop()
	x.Close()
	r.open(linkKey{}, open)
	require.Eventually(t, func() bool { return len(r.tunnels.all()) == 0 }, 60*time.Second, time.Millisecond)
}
