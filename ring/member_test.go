package ring

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/ntbtest"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// member adds a process to a host, whose first node owns its links.
func (f *fabric) member(t testing.TB, host, process int) *Node {
	t.Helper()
	o := f.o
	o.Member = true
	n := joined(t, link.MakeID(host, process), o)
	t.Cleanup(n.Close)
	f.uplink(t, n)
	return n
}

// uplink joins a member to the owner, and returns the member's end.
func (f *fabric) uplink(t testing.TB, n *Node) *Link {
	t.Helper()
	a, b := ntbmem.Pair(f.o.LinkWindow(256 << 10))
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := f.nodes[n.ID().Host()-1].Link(within(t), b, Down); err != nil {
			t.Error(err)
		}
	})
	l, err := n.Link(within(t), a, Up)
	require.NoError(t, err)
	wg.Wait()
	return l
}

// meshed returns a mesh of nodes in this process.
func meshed(t testing.TB, o Options) *fabric {
	o.Topology = Mesh
	f := &fabric{t: t, o: o}
	for host := 1; host <= o.Hosts; host++ {
		n := joined(t, link.MakeID(host, 1), o)
		f.nodes = append(f.nodes, n)
	}
	t.Cleanup(f.close)
	for i, n := range f.nodes {
		for _, m := range f.nodes[:i] {
			a, b := ntbmem.Pair(o.LinkWindow(256 << 10))
			var wg sync.WaitGroup
			wg.Go(func() { _, err := m.Link(within(t), b, Direct); require.NoError(t, err) })
			_, err := n.Link(within(t), a, Direct)
			require.NoError(t, err)
			wg.Wait()
		}
	}
	f.waitLinkStates(t)
	return f
}

// known waits until a node knows of another one, by its owner's link state, and of a route there.
func known(t testing.TB, n *Node, id link.ID) {
	t.Helper()
	require.Eventually(t, func() bool {
		h := n.Hosts()[id.Host()-1]
		if !slices.Contains(append(h.Members, h.Process), id.Process()) {
			return false
		}
		l, _ := n.router.nextHopTo(id, 0)
		return l != nil || id.Host() == n.ID().Host()
	}, 60*time.Second, time.Millisecond)
}

func TestMembersOfHostsReachEachOther(t *testing.T) {
	for name, build := range map[string]func(testing.TB, Options) *fabric{"ring": newFabric, "mesh": meshed} {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			f := build(t, small(4))
			a, b, c := f.member(t, 1, 2), f.member(t, 3, 7), f.member(t, 3, 8)
			nodes := append([]*Node{a, b, c}, f.nodes...)
			for _, from := range nodes {
				for _, to := range nodes {
					if from.ID().Host() == to.ID().Host() {
						continue
					}
					known(t, from, to.ID())
					p, err := from.Peer(within(t), to.ID())
					require.NoError(t, err)
					require.NoError(t, p.Send(link.ServiceSDP, []byte{1}))
				}
			}
			for _, n := range nodes {
				e := serviceOf(n)
				e.wait(t, func() bool {
					want := 0
					for _, from := range nodes {
						if from.ID().Host() != n.ID().Host() {
							want++
						}
					}
					return len(e.messages) == want
				})
			}
			require.Equal(t, link.MakeID(3, 1), a.Owner(3))
			require.Equal(t, link.MakeID(1, 1), a.Owner(1))
			require.Equal(t, "up", a.Status().Links[0].Direction)
			require.Equal(t, []int{7, 8}, f.nodes[1].Hosts()[2].Members)
			// Within a host there is only the link, and none between members.
			p, err := b.Peer(within(t), link.MakeID(3, 1))
			require.NoError(t, err)
			require.False(t, p.Frames() != nil)
			_, err = b.Peer(within(t), c.ID())
			require.ErrorIs(t, err, ErrUnreachable)
		})
	}
}

func TestTunnelBetweenMembersIsABridge(t *testing.T) {
	leak.Check(t)
	o := small(3)
	o.Topology = Line
	o.Window = link.MinWindow
	f := newFabric(t, o)
	from, to := f.member(t, 1, 2), f.member(t, 3, 2)
	known(t, from, to.ID())
	known(t, to, from.ID())
	ntbtest.Run(t, func(t *testing.T) (a, b ntb.Device) {
		return asDevices(pairUp(t, from, to))
	})
}

// up returns a member's link to the owner.
func up(n *Node) *Link {
	n.router.mu.Lock()
	defer n.router.mu.Unlock()
	return n.router.links[linkKey{Up, 0}]
}

func TestAMemberSpeaksForItselfAlone(t *testing.T) {
	leak.Check(t)
	o := small(3)
	o.Topology = Line
	f := newFabric(t, o)
	bad, good := f.member(t, 2, 5), f.member(t, 2, 6)
	owner := f.nodes[1]
	send := func(fr frame.Header, body []byte) {
		t.Helper()
		fr.Length = uint32(len(body))
		for !up(bad).out[0].inject(&fr, body) {
			time.Sleep(time.Millisecond)
		}
	}
	first := func(n *Node, why frame.Reason, send func()) {
		t.Helper()
		require.Zero(t, n.router.drops[why].Load(), why)
		send()
		dropsOf(t, n, why)
	}
	a, b := f.tunnels(t, 1, 3)
	defer a.Close()
	defer b.Close()
	tb := b
	data := frame.Header{Kind: frame.Data, Hops: 9, Src: link.MakeID(1, 1), Dst: link.MakeID(3, 1), To: tb.Index, Epoch: tb.Epoch, Seq: 1}
	word := publishes([2]uint64{64, 99})
	// In the name of another host, of its own owner, and of another member.
	first(owner, frame.DropSource, func() { send(data, word) })
	for i, src := range []link.ID{owner.ID(), good.ID()} {
		data.Src = src
		send(data, word)
		require.Eventually(t, func() bool { return owner.router.drops[frame.DropSource].Load() == uint64(i+2) }, 60*time.Second, time.Millisecond)
	}
	// For the members of its own host, and for the owner, since it has bridges to
	// them.
	first(owner, frame.DropUnknownNode, func() { send(frame.Header{Kind: frame.Open, Src: bad.ID(), Dst: good.ID(), Hops: 9}, nil) })
	// Link states, and frames that may not go on.
	first(owner, frame.DropLinkState, func() { send(frame.Header{Kind: frame.LinkState, Src: link.MakeID(3, 1), Seq: 1 << 31}, nil) })
	first(owner, frame.DropHops, func() { send(frame.Header{Kind: frame.Open, Src: bad.ID(), Dst: link.MakeID(3, 1), Hops: 1}, nil) })
	// In its own name, for a tunnel of another node.
	data.Src = bad.ID()
	first(f.nodes[2], frame.DropForged, func() { send(data, word) })
	require.Zero(t, ntb.Load64(b.Inbound(), 64))
	require.Equal(t, link.MakeID(3, 1), f.nodes[0].Owner(3))

	// From the other side, for a member that does not exist, and in the host's own
	// name.
	first(f.nodes[2], frame.DropUnknownNode, func() {
		forge(t, f, frame.Header{Kind: frame.Data, Hops: 9, Src: link.MakeID(1, 1), Dst: link.MakeID(3, 9)}, nil)
	})
	forge(t, f, frame.Header{Kind: frame.Data, Hops: 9, Src: link.MakeID(3, 9), Dst: link.MakeID(3, 1)}, nil)
	dropsOf(t, f.nodes[2], frame.DropUnknownTunnel)
	require.True(t, a.LinkUp() && b.LinkUp())
}

// A member whose workers stand still loses its frames, and no other node does. What
// was dropped comes again when the member goes on.
func TestAStoppedMemberDoesNotStopTheRing(t *testing.T) {
	leak.Check(t)
	o := small(3)
	o.Topology = Line
	f := newFabric(t, o)
	m := f.member(t, 2, 5)
	known(t, f.nodes[0], m.ID())
	known(t, m, link.MakeID(1, 1))
	a, b := pairUp(t, f.nodes[0], m)
	x, y := f.tunnels(t, 1, 3) // through the member's owner
	defer func() {
		for _, d := range []*tunnelEnd{a, b, x, y} {
			d.Close()
		}
	}()

	in := up(m).in[0]
	in.mu.Lock() // its worker takes no frames any more
	const words = 64
	out := a.Outbound()
	for i := range uint64(words) { // more than all queues take, and less than is retained
		out.Publish64(8*int(i), i+1)
	}
	owner := f.nodes[1].router
	dropsOf(t, f.nodes[1], frame.DropStopped)
	past := x.Outbound()
	for i := range uint64(1000) {
		past.Publish64(0, i)
	}
	x.settle()
	require.Equal(t, uint64(999), ntb.Load64(y.Inbound(), 0))
	dropped := owner.drops[frame.DropStopped].Load()
	in.mu.Unlock()
	a.settle()
	for i := range uint64(words) {
		require.Equal(t, i+1, ntb.Load64(b.Inbound(), 8*int(i)))
	}
	require.Positive(t, dropped)
}

// Members of all hosts send to each other over the smallest queues, with the
// owners' own traffic between.
func TestMembersDoNotStopTheRing(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(3))
	all := append([]*Node{}, f.nodes...)
	for host := 1; host <= 3; host++ {
		all = append(all, f.member(t, host, 2))
	}
	var devices []*tunnelEnd
	for _, from := range all {
		for _, to := range all {
			if from.ID().Host() == to.ID().Host() {
				continue
			}
			known(t, from, to.ID())
			known(t, to, from.ID())
			x, y := pairUp(t, from, to)
			devices = append(devices, x, y)
		}
	}
	var wg sync.WaitGroup
	for _, d := range devices {
		wg.Go(func() {
			b := make([]byte, 700) // two frames
			out := d.Outbound()
			for i := range uint64(100) {
				out.Write(64, b)
				out.Publish64(0, i+1)
			}
			d.settle()
		})
	}
	wg.Wait()
	for _, d := range devices {
		require.Equal(t, uint64(100), ntb.Load64(d.Inbound(), 0))
	}
	for _, d := range devices {
		d.Close()
	}
}

func TestATunnelEndsWithItsMember(t *testing.T) {
	leak.Check(t)
	o := small(3)
	o.Topology = Line
	f := newFabric(t, o)
	m := f.member(t, 2, 5)
	known(t, f.nodes[2], m.ID())
	p, err := f.nodes[2].Peer(within(t), m.ID())
	require.NoError(t, err)
	up(m).Close()
	<-p.Done() // it sends nothing, and learns of it
	require.ErrorIs(t, p.Err(), ErrUnreachable)
	_, err = f.nodes[2].Peer(within(t), m.ID())
	require.ErrorIs(t, err, ErrUnreachable)

	// A link that is made again in time is not noticed.
	f.uplink(t, m)
	known(t, f.nodes[2], m.ID())
	p, err = f.nodes[2].Peer(within(t), m.ID())
	require.NoError(t, err)
	l := up(m)
	l.Close()
	<-l.Done()
	f.uplink(t, m)
	require.NoError(t, p.Send(link.ServiceSDP, []byte("again")))
	e := serviceOf(m)
	e.wait(t, func() bool { return len(e.messages) == 1 })
}

func TestLinksWithinAHostAreChecked(t *testing.T) {
	leak.Check(t)
	o := small(3)
	f := newFabric(t, o)
	for name, id := range map[string]link.ID{"another host's": link.MakeID(3, 2), "the owner's own": link.MakeID(1, 1)} {
		o.Member = true
		n := joined(t, id, o)
		a, b := ntbmem.Pair(o.LinkWindow(link.MinWindow))
		var wg sync.WaitGroup
		wg.Go(func() {
			_, err := f.nodes[0].Link(within(t), b, Down)
			require.Error(t, err, name)
		})
		_, err := n.Link(within(t), a, Up)
		require.Error(t, err, name)
		wg.Wait()
		for _, d := range []Direction{Left, Right, Direct, Down} {
			a, b := ntbmem.Pair(o.LinkWindow(link.MinWindow))
			_, err := n.Link(within(t), a, d)
			require.ErrorContains(t, err, "does not lead", name)
			b.Close()
		}
		n.Close()
	}
}

// A member learns of a cut from its owner, and sends again by the route that is left.
func TestTunnelsOfMembersGoOnWhenALinkIsCut(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(4))
	from, to := f.member(t, 1, 2), f.member(t, 3, 2)
	known(t, from, to.ID())
	known(t, to, from.ID())
	x, y := pairUp(t, from, to)
	s := &stream{from: x, to: y, rounds: 2000, size: streamSlot}
	var wg sync.WaitGroup
	s.start(&wg)
	for _, cable := range []int{0, 2, 1, 3} {
		at := s.done.Load()
		for s.done.Load() < min(at+50, s.rounds) {
			time.Sleep(time.Millisecond)
		}
		f.cut(cable)
		for at = s.done.Load(); s.done.Load() < min(at+50, s.rounds); {
			time.Sleep(time.Millisecond)
		}
		f.connect(cable)
	}
	wg.Wait()
	s.check(t)
	once(t, x, y)
	x.Close()
	y.Close()
}

// A node that only waits for frames learns that the other end is another process by
// now, with the same id.
func TestAnIdleTunnelEndsWithAProcessThatIsReplaced(t *testing.T) {
	leak.Check(t)
	o := small(3)
	o.Topology = Line
	f := newFabric(t, o)
	m := f.member(t, 2, 5)
	known(t, f.nodes[2], m.ID())
	p, err := f.nodes[2].Peer(within(t), m.ID())
	require.NoError(t, err)
	idle := func(n *Node) bool {
		for _, tn := range n.router.tunnels.all() {
			if tn.kept() > 0 {
				return false
			}
		}
		return true
	}
	for !idle(f.nodes[2]) || !idle(m) {
		time.Sleep(time.Millisecond)
	}
	time.Sleep(2 * arq.AckDelay)
	for _, tn := range m.router.tunnels.all() { // it forgets them without a message
		m.router.tunnels.remove(tn)
	}
	l := up(m)
	l.Close()
	<-l.Done()
	f.uplink(t, m)
	<-p.Done()
}

// newOwner is newRelay with a member in place of the left neighbour.
func newOwner(t testing.TB, o Options, length int) *relay {
	m := newMiddle(t, o, length)
	r := m.n.router
	r.links[linkKey{Right, 0}] = r.sides[Right].Load()
	r.sides[Left].Store(nil) // otherwise its frames would be waited for
	m.in.link.direction, m.in.link.id = Down, link.MakeID(2, 9)
	m.f.Src = m.in.link.id
	m.f.Encode(&m.header)
	return m
}

func TestForwardingForAMemberDoesNotAllocate(t *testing.T) {
	if lock.Checked {
		t.Skip("checked locks allocate")
	}
	m := newOwner(t, Options{Hosts: 3, Topology: Line}, 4096)
	defer m.close()
	if n := testing.AllocsPerRun(100, func() { m.feed(); m.in.drain() }); n > 0 {
		t.Errorf("%v allocations for a frame", n)
	}
	if n := m.out.stats.fwdFrames; n < 100 {
		t.Errorf("%d frames were forwarded", n)
	}
}

// BenchmarkForwardForMember measures an owner's work for a frame of a member.
// Compare it with BenchmarkForward.
func BenchmarkForwardForMember(b *testing.B) {
	for _, n := range []int{64, 4096, 64 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := newOwner(b, Options{Hosts: 3, Topology: Line}, n)
			defer m.close()
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				m.feed()
				m.in.drain()
			}
			if m.out.stats.fwdFrames < uint64(b.N) {
				b.Fatalf("%d of %d frames were forwarded", m.out.stats.fwdFrames, b.N)
			}
		})
	}
}
