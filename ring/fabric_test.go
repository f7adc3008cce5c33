package ring

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/ntbfault"
	"github.com/ntbnet/ntbnet/internal/testing/ntbtest"
	"github.com/ntbnet/ntbnet/internal/testing/recorder"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// fabric is a ring or a line of nodes in this process.
type fabric struct {
	t     testing.TB
	o     Options
	nodes []*Node // host i+1
	// faults, if set, are the faults of every cable.
	faults *ntbfault.Options
	// wrap, if set, makes another device of that of a host's link.
	wrap   func(host int, d Direction, dev ntb.Device) ntb.Device
	mu     sync.Mutex
	cable  map[int]*Link            // by host, its right link; guarded by mu
	bridge map[int]*ntbfault.Device // by host, the device of that link, if it has faults; guarded by mu
	made   uint64                   // number of cables made; guarded by mu
	rec    *recorder.Recorder
	// patience is how many seconds streams may stand still before they count as stopped; 0 for 60.
	patience int
}

// small returns options for tests: little memory, and slots that are soon full.
func small(nodes int) Options {
	return Options{Hosts: nodes, Slots: 2, FrameBytes: 512, Window: 1 << 20, Retention: 16 << 10}
}

func newFabric(t testing.TB, o Options) *fabric {
	t.Helper()
	return newFaultyFabric(t, o, nil)
}

// newPlainFabric returns a fabric without a recorder, for tests that break the rules or
// store very often.
func newPlainFabric(t testing.TB, o Options) *fabric {
	t.Helper()
	return buildFabric(t, &fabric{o: o})
}

func newFaultyFabric(t testing.TB, o Options, faults *ntbfault.Options) *fabric {
	t.Helper()
	return buildFabric(t, &fabric{o: o, faults: faults, rec: recorder.ForLinks(t)})
}

func buildFabric(t testing.TB, f *fabric) *fabric {
	t.Helper()
	f.t, f.cable, f.bridge = t, map[int]*Link{}, map[int]*ntbfault.Device{}
	o := f.o
	for host := 1; host <= o.Hosts; host++ {
		n := joined(t, link.MakeID(host, 1), o)
		f.nodes = append(f.nodes, n)
	}
	var wg sync.WaitGroup
	for i := range f.cables() {
		wg.Go(func() { f.connect(i) })
	}
	wg.Wait()
	t.Cleanup(f.close)
	if t.Failed() {
		t.FailNow()
	}
	f.waitLinkStates(t)
	return f
}

// waitLinkStates waits until all hosts have the link state of each. Until then a route may seem
// to be cut.
func (f *fabric) waitLinkStates(t testing.TB) {
	t.Helper()
	number := func(n *Node, host int) uint64 {
		n.router.mu.Lock()
		defer n.router.mu.Unlock()
		if n.router.linkStates[host] == nil {
			return 0
		}
		return n.router.linkStates[host].number
	}
	require.Eventually(t, func() bool {
		for host, n := range f.nodes {
			own := number(n, host+1)
			for _, other := range f.nodes {
				if number(other, host+1) != own {
					return false
				}
			}
		}
		return true
	}, 60*time.Second, time.Millisecond)
}

func (f *fabric) close() {
	var wg sync.WaitGroup
	for _, n := range f.nodes {
		wg.Go(n.Close)
	}
	wg.Wait()
}

func (f *fabric) cables() int {
	if f.o.Topology == Line {
		return f.o.Hosts - 1
	}
	return f.o.Hosts
}

// connect cables host i+1 to its right neighbour.
func (f *fabric) connect(i int) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var a, b ntb.Device
	a, b = ntbmem.Pair(f.o.LinkWindow(256 << 10))
	if f.faults != nil {
		o := *f.faults
		f.mu.Lock()
		o.Seed += f.made
		f.made++
		x, y := ntbfault.Pair(a, b, o)
		f.bridge[i] = x
		f.mu.Unlock()
		a, b = x, y
	}
	if f.wrap != nil {
		a, b = f.wrap(i+1, Right, a), f.wrap((i+1)%f.o.Hosts+1, Left, b)
	}
	a, b = f.rec.Pair(a, b)
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := f.nodes[(i+1)%f.o.Hosts].Link(ctx, b, Left); err != nil {
			f.t.Error(err)
		}
	})
	l, err := f.nodes[i].Link(ctx, a, Right)
	if err != nil {
		f.t.Error(err)
	}
	wg.Wait()
	f.mu.Lock()
	f.cable[i] = l
	f.mu.Unlock()
}

// cut cuts the right cable of host i+1.
func (f *fabric) cut(i int) {
	f.mu.Lock()
	l := f.cable[i]
	f.mu.Unlock()
	l.Close()
	<-l.Done()
}

// pull cuts the right cable of host i+1. What is under way there vanishes. All
// cables must have faults, perhaps the zero ones.
func (f *fabric) pull(i int) {
	f.mu.Lock()
	l, dev := f.cable[i], f.bridge[i]
	f.mu.Unlock()
	dev.Cut()
	<-l.Done()
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// tunnels makes the two ends of a tunnel from host a to host b, without peers.
func (f *fabric) tunnels(t testing.TB, a, b int) (x, y *tunnelEnd) {
	t.Helper()
	return pairUp(t, f.nodes[a-1], f.nodes[b-1])
}

// pairUp makes the two ends of a tunnel between two nodes, without peers. Of two routes of the
// same length it takes the one to the right of the lower host.
func pairUp(t testing.TB, from, to *Node) (x, y *tunnelEnd) {
	t.Helper()
	return pairUpBy(t, from, to, link.NewEpoch()>>1)
}

// pairUpBy is pairUp with an epoch, which chooses the route.
func pairUpBy(t testing.TB, from, to *Node, epoch uint32) (x, y *tunnelEnd) {
	t.Helper()
	x = newAsker(from.router, to.id)
	x.Epoch = epoch
	// Otherwise a link state that comes has it ask before it is admitted.
	held, done := make(chan struct{}), make(chan struct{})
	go x.Step(func(*arq.End, time.Time) { close(held); <-done })
	<-held
	from.router.tunnels.add(x)
	y = admitted(t, to.router, x)
	close(done)
	y.Reroute()
	x.Reroute()
	select {
	case <-x.Opened():
	case <-time.After(60 * time.Second):
		require.Fail(t, "it is not opened")
	}
	return x, y
}

// openFrame returns the frame by which x asks for its other end.
func (t *tunnelEnd) openFrame() *frame.Header {
	o := &t.router.opts
	return &frame.Header{
		Kind: frame.Open, Src: t.router.node.id, Dst: t.Remote, Hops: o.mostHops(), From: t.Index, Epoch: t.Epoch,
		Arg: uint32(o.Window >> 10), Ask: uint32(o.Retention >> 10),
	}
}

// admitted returns the other end of x, without a peer, as if the frame that asks for it had
// come. What x sends itself comes later.
func admitted(t testing.TB, r *router, x *tunnelEnd) *tunnelEnd {
	t.Helper()
	open := x.openFrame()
	for end := time.Now().Add(60 * time.Second); !r.named(open.Src); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "%v is not named", open.Src)
	}
	y := r.admit(linkKey{}, open)
	require.NotNil(t, y)
	r.node.wg.Done() // there is no peer
	return y
}

func TestTunnelIsABridge(t *testing.T) {
	leak.Check(t)
	for _, hops := range []int{1, 2, 4} {
		o := small(hops + 1)
		o.Topology = Line
		o.Window = link.MinWindow
		f := newPlainFabric(t, o)
		t.Run(string(rune('0'+hops))+" hops", func(t *testing.T) {
			ntbtest.Run(t, func(t *testing.T) (a, b ntb.Device) { return asDevices(f.tunnels(t, 1, hops+1)) })
		})
	}
}

func TestPeersOverARing(t *testing.T) {
	leak.Check(t)
	f := newFabric(t, small(5))
	for from := range f.nodes {
		for to := range f.nodes {
			if from == to {
				continue
			}
			p, err := f.nodes[from].Peer(within(t), link.MakeID(to+1, 1))
			require.NoError(t, err)
			require.Equal(t, link.MakeID(to+1, 1), p.ID())
			neighbour := (from-to+5)%5 == 1 || (to-from+5)%5 == 1
			require.Equal(t, !neighbour, p.Frames() != nil)
			require.NoError(t, p.Send(link.ServiceSDP, []byte{byte(from)}))
		}
	}
	for to, n := range f.nodes {
		e := serviceOf(n)
		e.wait(t, func() bool { return len(e.messages) == 4 })
		var sum int
		for _, m := range e.messages {
			sum += int(m[0])
		}
		require.Equal(t, 0+1+2+3+4-to, sum)
	}
}
