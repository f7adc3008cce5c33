package ring

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// Links on either route are cut and mended again and again during a transfer.
func TestStreamGoesOnWhenLinksAreCutAndMended(t *testing.T) {
	leak.Check(t)
	cuts := 20
	if testing.Short() {
		cuts = 6
	}
	o := small(4)
	f := newFabric(t, o)
	a, b := f.tunnels(t, 1, 3)
	s := &stream{from: a, to: b, rounds: 1 << 40, size: streamSlot}
	var wg sync.WaitGroup
	s.start(&wg)
	moved := func() {
		from := s.done.Load()
		for s.done.Load() < from+50 && a.LinkUp() && b.LinkUp() && s.wrong.Load() == nil {
			time.Sleep(100 * time.Microsecond)
		}
	}
	for i := range cuts {
		moved()
		f.cut(i % 4) // on both routes in turn, near the source, midway, near the destination
		moved()
		f.connect(i % 4)
	}
	moved()
	s.stop.Store(true)
	wg.Wait()
	if w := s.wrong.Load(); w != nil {
		t.Fatal(*w)
	}
	require.True(t, a.LinkUp())
	once(t, a, b)
	require.Positive(t, a.Stats().Restarts)
	a.Close()
	b.Close()
}

func TestPeerIsUnreachableWhenBothWaysAreCut(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(4))
	p, err := f.nodes[0].Peer(within(t), link.MakeID(3, 1))
	require.NoError(t, err)
	f.cut(0)
	require.True(t, p.Up())
	again, err := f.nodes[0].Peer(within(t), link.MakeID(3, 1))
	require.NoError(t, err)
	require.Same(t, p, again)
	f.cut(2)
	<-p.Done()
	require.ErrorIs(t, p.Err(), ErrUnreachable)
	require.ErrorIs(t, p.Err(), link.ErrDown)
	_, err = f.nodes[0].Peer(within(t), link.MakeID(3, 1))
	require.ErrorIs(t, err, ErrUnreachable)
	// This is the other direction, where a moment may be missing to the second, and
	// the nodes that still have a route.
	for _, p := range f.nodes[2].Peers() {
		if p.ID() == link.MakeID(1, 1) {
			<-p.Done()
		}
	}
	_, err = f.nodes[2].Peer(within(t), link.MakeID(1, 1))
	require.ErrorIs(t, err, ErrUnreachable)
	_, err = f.nodes[0].Peer(within(t), link.MakeID(4, 1))
	require.NoError(t, err)
	f.connect(0)
	_, err = f.nodes[0].Peer(within(t), link.MakeID(3, 1))
	require.NoError(t, err)
}

func TestKilledNodeTakesOnlyItsOwnTunnelsDown(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(5))
	over, err := f.nodes[0].Peer(within(t), link.MakeID(3, 1)) // through host 2
	require.NoError(t, err)
	with, err := f.nodes[3].Peer(within(t), link.MakeID(2, 1))
	require.NoError(t, err)
	// This is as when a process is killed: its links go down without a message.
	f.cut(0)
	f.cut(1)
	<-with.Done()
	require.True(t, over.Up())
	require.NoError(t, over.Send(link.ServiceSDP, []byte("on")))
	e := serviceOf(f.nodes[2])
	e.wait(t, func() bool { return len(e.messages) == 1 })
}

func TestNeighbourSurvivesACutWithFailover(t *testing.T) {
	leak.Check(t)
	o := small(3)
	o.Failover = true
	f := newFabric(t, o)
	p, err := f.nodes[0].Peer(within(t), link.MakeID(2, 1))
	require.NoError(t, err)
	require.True(t, p.Frames() != nil)
	f.cut(0)
	require.NoError(t, p.Send(link.ServiceSDP, []byte("on")))
	e := serviceOf(f.nodes[1])
	e.wait(t, func() bool { return len(e.messages) == 1 })
	require.True(t, p.Up())
	require.Equal(t, "left", f.nodes[0].Tunnels()[0].Direction)
	f.connect(0)
	require.True(t, p.Up())
}

// refuse brings up a link between two nodes that must refuse each other.
func refuse(t *testing.T, a, b *Node, da, db Direction) (error, error) {
	t.Helper()
	x, y := ntbmem.Pair(1 << 20)
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	errs := make(chan error, 1)
	go func() {
		_, err := b.Link(ctx, y, db)
		errs <- err
	}()
	_, err := a.Link(ctx, x, da)
	other := <-errs
	a.Close()
	b.Close()
	return err, other
}

func TestLinkIsRefusedOnBothSides(t *testing.T) {
	leak.Check(t)
	node := func(host, process int, change func(o *Options)) *Node {
		o := small(4)
		if change != nil {
			change(&o)
		}
		n := joined(t, link.MakeID(host, process), o)
		return n
	}
	for name, c := range map[string]struct {
		a, b   *Node
		da, db Direction
		want   error
	}{
		"same id":           {node(1, 1, nil), node(1, 1, nil), Right, Left, ErrSameID},
		"same host":         {node(1, 1, nil), node(1, 2, nil), Right, Left, ErrSameID},
		"number of nodes":   {node(1, 1, nil), node(2, 1, func(o *Options) { o.Hosts = 5 }), Right, Left, ErrMismatch},
		"topology":          {node(1, 1, nil), node(2, 1, func(o *Options) { o.Topology = Line }), Right, Left, ErrMismatch},
		"lanes":             {node(1, 1, nil), node(2, 1, func(o *Options) { o.Lanes = 2 }), Right, Left, ErrMismatch},
		"slots":             {node(1, 1, nil), node(2, 1, func(o *Options) { o.Slots = 3 }), Right, Left, ErrMismatch},
		"frame":             {node(1, 1, nil), node(2, 1, func(o *Options) { o.FrameBytes = 576 }), Right, Left, ErrMismatch},
		"direction":         {node(1, 1, nil), node(2, 1, nil), Right, Right, ErrMismatch},
		"place in the ring": {node(1, 1, nil), node(3, 1, nil), Right, Left, ErrMismatch},
	} {
		ea, eb := refuse(t, c.a, c.b, c.da, c.db)
		require.ErrorIs(t, ea, c.want, name)
		require.ErrorIs(t, eb, c.want, name)
	}
}

func TestLinkAndPlainPeerRefuseEachOther(t *testing.T) {
	leak.Check(t)
	x, y := ntbmem.Pair(1 << 20)
	a, b := joined(t, link.MakeID(1, 1), small(2)), link.NewNode(link.MakeID(2, 1))
	errs := make(chan error, 1)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // each has its seen elsewhere
	defer cancel()
	go func() { _, err := b.Up(ctx, y); errs <- err }()
	_, err := a.Link(ctx, x, Right)
	require.Error(t, err) // ErrMismatch, or the plain side hung up first
	require.ErrorIs(t, <-errs, link.ErrProtocol)
	a.Close()
	b.Close()
}

func TestNodesComeUpInAnyOrder(t *testing.T) {
	leak.Check(t)
	o := small(3)
	var nodes []*Node
	for host := 1; host <= 3; host++ {
		n := joined(t, link.MakeID(host, 1), o)
		nodes = append(nodes, n)
	}
	_, err := nodes[0].Peer(within(t), link.MakeID(2, 1))
	require.ErrorIs(t, err, ErrUnreachable)
	f := &fabric{t: t, o: o, nodes: nodes, cable: map[int]*Link{}}
	t.Cleanup(f.close)
	f.connect(1)
	_, err = nodes[0].Peer(within(t), link.MakeID(2, 1))
	require.ErrorIs(t, err, ErrUnreachable)
	f.connect(2) // 1 is on 3's other side, so 2 is two hops from it
	for {
		p, err := nodes[0].Peer(within(t), link.MakeID(2, 1))
		if errors.Is(err, ErrUnreachable) {
			runtime.Gosched()
			continue // the link state of 2 is under way
		}
		require.NoError(t, err)
		require.True(t, p.Frames() != nil)
		break
	}
	f.connect(0)
	p, err := nodes[0].Peer(within(t), link.MakeID(2, 1))
	require.NoError(t, err)
	require.False(t, p.Frames() != nil)
	// A node is started again, as another process.
	f.cut(0)
	f.cut(1)
	nodes[1].Close()
	n := joined(t, link.MakeID(2, 7), o)
	nodes[1] = n
	f.connect(0)
	f.connect(1)
	_, err = nodes[0].Peer(within(t), link.MakeID(2, 7))
	require.NoError(t, err)
	for nodes[2].Hosts()[1].Process != 7 {
		runtime.Gosched() // the link state of 2 is under way
	}
}

func TestLinkWithoutRoomForLanesIsRefused(t *testing.T) {
	n := joined(t, link.MakeID(1, 1), small(2))
	defer n.Close()
	x, y := ntbmem.Pair(64 << 10)
	defer y.Close()
	ctx, cancel := context.WithCancel(context.Background())
	cancel() // otherwise it would wait for the neighbour, and inform that
	_, err := n.Link(ctx, x, Right)
	require.ErrorIs(t, err, ErrUnfit)
	require.False(t, y.LinkUp())
}
