package ring

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/explore"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// rungBy is a device whose doorbells wake a worker of a scheduled ring.
type rungBy struct {
	ntb.Device
	ring func()
}

func (d rungBy) RingDoorbell(int) { d.ring() }

// worker stands for the worker of a link with one lane, and for what comes when that has
// ended. Each step is one that others may come before and after.
type worker struct {
	link   *Link
	other  *worker // at the other end
	step   int
	worked bool
	more   bool
	rung   atomic.Bool // also set by outLane.pollOn, on a goroutine of its own
	cut    bool
}

const (
	stepDrain = iota
	stepOnward
	stepPoll
	stepSleep
	stepLook
	stepAsleep
	stepClose // from here on the link has ended
	stepClosed
	stepGone
	stepEnded
)

// ringOfTunnels is a ring without goroutines. Workers, users of tunnels, and what ends links
// take steps in an order that a seed chooses. A worker that sleeps is woken by a doorbell and
// by nothing else. The clock has no part in it, unless the test does.
type ringOfTunnels struct {
	t       *testing.T
	rng     *rand.Rand
	o       Options
	lossy   bool
	nodes   []*Node // the owners, by host, and the members behind them
	workers []*worker
	tunnels []*tunnelEnd
	stores  map[*tunnelEnd]*storing
	moved   map[*tunnelEnd]bool // links have changed since it found its next hop
}

// storing is what one end of a tunnel stores: words and data, each published with its number.
type storing struct {
	far  *tunnelEnd
	turn *link.Turn
	done uint64 // the last number
	left int    // stores to come
}

func newRingOfTunnels(t *testing.T, seed uint64) *ringOfTunnels {
	rng := rand.New(rand.NewPCG(seed, 3))
	members := seed%2 == 1
	w := &ringOfTunnels{
		t: t, rng: rng, lossy: seed%5 == 4, stores: map[*tunnelEnd]*storing{}, moved: map[*tunnelEnd]bool{},
		o: Options{
			Hosts: 3 + int(seed/2%3), Slots: 2 + rng.IntN(3), FrameBytes: 256, Window: link.MinWindow,
			Retention: 1024 << rng.IntN(4), NoSpin: rng.IntN(2) == 0,
		},
	}
	join := func(host, process int, o Options) *Node {
		n, err := Join(link.NewNode(link.MakeID(host, process)), o)
		require.NoError(t, err)
		w.nodes = append(w.nodes, n)
		return n
	}
	for host := 1; host <= w.o.Hosts; host++ {
		join(host, 1, w.o)
	}
	for i, n := range w.nodes {
		w.cable(n, w.nodes[(i+1)%w.o.Hosts], Right, Left)
	}
	if members {
		member := w.o
		member.Member = true
		for _, owner := range w.nodes[:w.o.Hosts] {
			w.cable(join(owner.id.Host(), 2, member), owner, Up, Down)
		}
	}
	w.flood()
	for range 2 + rng.IntN(5) {
		from, to := w.nodes[rng.IntN(len(w.nodes))], w.nodes[rng.IntN(len(w.nodes))]
		if from.router.host != to.router.host {
			w.tunnel(from, to)
		}
	}
	return w
}

func (w *ringOfTunnels) cable(a, b *Node, da, db Direction) {
	x, y := ntbmem.Pair(w.o.LinkWindow(0))
	near, far := &worker{}, &worker{}
	near.other, far.other = far, near
	for _, end := range []struct {
		w   *worker
		dev ntb.Device
		n   *Node
		far *Node
		d   Direction
	}{{near, x, a, b, da}, {far, y, b, a, db}} {
		other := end.w.other
		var mu sync.Mutex
		rng := rand.New(rand.NewPCG(w.rng.Uint64(), 4))
		dev := rungBy{end.dev, func() {
			mu.Lock()
			defer mu.Unlock()
			if !w.lossy || rng.IntN(4) > 0 {
				other.rung.Store(true)
			}
		}}
		l, err := newLink(end.n.router, dev, end.d)
		require.NoError(w.t, err)
		l.id = end.far.id
		l.adverts, l.resets = &sendQueue[int]{link: l, frame: l.advertFrame}, newResets(l)
		l.out[0].stall.watching = true // the clock has no part in it
		r := end.n.router
		r.links[l.key()] = l
		r.setLocked(l, l)
		end.w.link = l
		w.workers = append(w.workers, end.w)
	}
}

// flood has all nodes know the state of all links.
func (w *ringOfTunnels) flood() {
	for host := 1; host <= w.o.Hosts; host++ {
		r := w.nodes[host-1].router
		n := &linkState{id: w.nodes[host-1].id}
		for _, d := range []Direction{Left, Right} {
			n.sides[d] = stateDown
			if l := r.links[linkKey{d, 0}]; l != nil {
				n.sides[d], n.links[d] = stateUp, 1
			}
		}
		for id := range *r.members.Load() {
			n.members = append(n.members, id)
		}
		for _, node := range w.nodes {
			node.router.linkStates[host] = n
			node.router.version.Add(1)
		}
	}
	for _, t := range w.tunnels {
		w.moved[t] = true
	}
}

func (w *ringOfTunnels) tunnel(from, to *Node) {
	from.router.silenceAlarms()
	to.router.silenceAlarms()
	x := newAsker(from.router, to.id)
	from.router.tunnels.add(x)
	y := to.router.admit(linkKey{}, x.openFrame())
	require.NotNil(w.t, y)
	to.router.node.wg.Done() // there is no peer
	for _, t := range []*tunnelEnd{x, y} {
		turn, _ := newTurn()
		w.tunnels = append(w.tunnels, t)
		w.stores[t] = &storing{far: x, turn: turn, left: w.rng.IntN(60)}
		w.moved[t] = true
	}
	w.stores[x].far = y
}

// work takes the next step of a worker. It reports whether there was one.
func (w *ringOfTunnels) work(k *worker) bool {
	in, out := k.link.in[0], k.link.out[0]
	k.step++
	switch k.step - 1 {
	case stepDrain:
		k.worked = in.drain()
	case stepOnward:
		in.pollOnward()
	case stepPoll:
		if k.more = out.pollSome(); k.more {
			k.step = stepDrain
		}
	case stepSleep:
		if k.worked && !w.o.NoSpin && (in.ready() || out.roomCame()) || !in.sleep() {
			k.step = stepDrain
		}
	case stepLook:
		if out.roomCame() {
			k.step = stepDrain
		}
	case stepAsleep:
		switch {
		case k.cut:
		case k.rung.Swap(false):
			k.step = stepDrain
		default:
			k.step = stepAsleep
			return false
		}
	case stepClose:
		in.close()
	case stepClosed:
		in.pollOnward()
	case stepGone:
		r := k.link.router
		delete(r.links, k.link.key())
		r.setLocked(k.link, nil)
		w.flood()
		out.close()
	default:
		k.step = stepEnded
		return false
	}
	return true
}

// use has the user of a tunnel store something. It reports whether it did.
func (w *ringOfTunnels) use(t *tunnelEnd) bool {
	s := w.stores[t]
	out := t.Outbound()
	if s.left == 0 || !t.LinkUp() || out.Len() == 0 {
		return false
	}
	p := make([]byte, 8*(1+w.rng.IntN(80)))
	switch w.rng.IntN(4) {
	case 0:
		if t.Data(64, p, s.turn) < len(p) {
			t.Leave(s.turn)
		}
	case 1:
		t.Store(64, p)
	case 2:
		t.Wake(uint32(s.done), [2]int{24, 32})
	}
	s.left--
	s.done++
	if w.rng.IntN(2) == 0 {
		t.Update(8, s.done, 8)
	}
	t.Publish(0, s.done, 8)
	if w.rng.IntN(4) == 0 {
		t.Store64(16, s.done) // which nothing follows, perhaps
	}
	return true
}

// step has one that is ready take a step. It reports whether there was one. many means that
// users store.
func (w *ringOfTunnels) step(many bool) bool {
	n, m := len(w.workers), len(w.tunnels)
	for _, i := range w.rng.Perm(n + 2*m) {
		did := false
		switch {
		case i < n:
			did = w.work(w.workers[i])
		case i < n+m:
			did = many && w.use(w.tunnels[i-n])
		default:
			t := w.tunnels[i-n-m]
			if did = w.moved[t]; did {
				w.moved[t] = false
				t.Reroute()
			}
		}
		if did {
			w.quiet()
			return true
		}
	}
	return false
}

// quiet waits for the goroutines that go on where others have left off.
func (w *ringOfTunnels) quiet() {
	for _, k := range w.workers {
		begin := time.Now()
		for k.link.out[0].polling.Load() > 0 {
			time.Sleep(time.Microsecond)
			require.Less(w.t, time.Since(begin), 30*time.Second, "a lane does not come to rest")
		}
	}
}

// rest goes on until nobody has a step. Where doorbells get lost, the guards come as well.
// The time for which frames are expected is over then. It returns what is wrong.
func (w *ringOfTunnels) rest() string {
	for again, guards := true, 0; again; {
		again = false
		for w.step(true) {
		}
		for _, k := range w.workers {
			in := k.link.in[0]
			if in.mu.Lock(); in.expected.on && !in.closed {
				again = true
			}
			in.mu.Unlock()
			if again {
				in.lapsed()
				break
			}
		}
		if !again && w.lossy && guards < 200 {
			guards++
			again = true
			for _, k := range w.workers {
				if k.step == stepAsleep {
					k.rung.Store(true) // a guard does what a worker does
				}
			}
		}
	}
	for _, k := range w.workers {
		l := k.link
		o, in := l.out[0], l.in[0]
		if k.step != stepAsleep && k.step != stepEnded {
			return fmt.Sprintf("a worker of %v stands at step %d", l.id, k.step)
		}
		o.mu.Lock()
		waits := len(o.turns.own) + len(o.turns.forwarded)
		what := turnNone
		if !o.down {
			what, _ = o.next()
		}
		o.mu.Unlock()
		if waits > 0 {
			return fmt.Sprintf("%d wait at %v for the link %v, with turn %d, and nobody comes", waits, l.router.node.id, l.direction, what)
		}
		if !k.cut && (in.ready() || in.blocked.Load()) {
			return fmt.Sprintf("a frame lies at %v, from %v, and nobody comes", l.router.node.id, l.direction)
		}
	}
	return ""
}

// arrived returns what has not arrived.
func (w *ringOfTunnels) arrived() string {
	for t, s := range w.stores {
		in := s.far.Inbound()
		if s.done == 0 || s.left > 0 && !t.LinkUp() {
			continue
		}
		if got := ntb.Load64(in, 0); got != s.done {
			return fmt.Sprintf("%v has %d from %v, which has published %d", s.far.router.node.id, got, t.router.node.id, s.done)
		}
	}
	return ""
}

// later has what is due after a long time happen.
func (w *ringOfTunnels) later() {
	at := time.Now().Add(time.Hour)
	for _, t := range w.tunnels {
		t.Step(func(e *arq.End, _ time.Time) { e.Expire(at) })
	}
}

func (w *ringOfTunnels) end() {
	for _, t := range w.tunnels {
		t.Drop()
		t.Close()
	}
	for _, k := range w.workers {
		k.link.dev.Close()
	}
}

// scheduleTunnels runs one ring. With cut, a cable is cut meanwhile.
func scheduleTunnels(t *testing.T, seed uint64, cut bool) string {
	w := newRingOfTunnels(t, seed)
	defer w.end()
	for i := range 200 {
		w.step(true)
		if cut && i == 100 {
			k := w.workers[2*w.rng.IntN(w.o.Hosts)]
			for _, k := range []*worker{k, k.other} {
				k.link.fail(link.ErrDown)
				k.cut = true
			}
		}
	}
	wrong := w.rest()
	for i := 0; wrong == "" && i < 50 && w.arrived() != ""; i++ {
		if !cut {
			break
		}
		w.later() // what was lost with the cable comes again
		wrong = w.rest()
	}
	if wrong == "" {
		wrong = w.arrived()
	}
	for _, t := range w.tunnels {
		if wrong == "" && t.State() != arq.Up {
			wrong = fmt.Sprintf("a tunnel of %v is %v", t.router.node.id, t.State())
		}
	}
	return wrong
}

// Everything that is published arrives in each order of steps, and nothing waits for what does
// not come. This holds with members, with doorbells that get lost, and when a cable is cut.
func TestNoScheduleStopsATunnel(t *testing.T) {
	first, end := explore.Range(t, 300)
	for _, cut := range []bool{false, true} {
		for seed := first; seed < end; seed++ {
			require.Empty(t, scheduleTunnels(t, seed, cut), "seed %d, cut: %t", seed, cut)
		}
	}
}
