package sdp

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
)

// Limits of durations, by the bubble's clock. Whatever a device does takes 5 ms at
// most, and a lost doorbell is made up for within a second.
const (
	slack      = time.Millisecond       // for deadlines, since no other time passes meanwhile
	closeLimit = 10*time.Second + slack // a peer over hops may be heard of from time to time; see Conn.Close
	hostLimit  = 15 * time.Second
	stuckAfter = time.Minute      // without progress, while nothing happens to the fabric
	freeLimit  = 30 * time.Second // until all is freed, after everything was closed
	bubbleLife = 10 * time.Minute
)

// bubbleNode is a node, from its start to its end. Its successor is another
// bubbleNode.
type bubbleNode struct {
	world  *bubbleWorld
	number int
	fabric *Fabric
	closed atomic.Bool // its Fabric is being closed
	dead   atomic.Bool

	stopped atomic.Bool
	mu      sync.Mutex
	running chan struct{} // closed unless the node is stopped; guarded by mu
}

// gate waits while the node is stopped. Everything that acts as an application
// calls it first.
func (n *bubbleNode) gate() {
	n.mu.Lock()
	running := n.running
	n.mu.Unlock()
	<-running
}

func (n *bubbleNode) stop() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !n.stopped.Swap(true) {
		n.running = make(chan struct{})
	}
}

func (n *bubbleNode) goOn() {
	n.mu.Lock()
	if n.stopped.Swap(false) {
		close(n.running)
	}
	n.mu.Unlock()
	for _, c := range n.world.cablesOf(n) {
		c.goOn()
	}
}

// bubbleWorld is everything in a bubble.
type bubbleWorld struct {
	plan *bubblePlan
	flaw flaw
	hub  *fabric.MemHosts
	jobs sync.WaitGroup // goroutines that make the plan's connections and events
	sure sync.WaitGroup // Fabrics that are being closed, and what only ends with them

	clock  atomic.Int64 // for goroutines outside: the time at the last tick
	broken atomic.Bool  // errors of connections may have a reason: a cut, a death, the end
	ending atomic.Bool  // all Fabrics are being closed
	well   atomic.Int64 // since when nothing happens to the fabric

	mu       sync.Mutex
	nodes    []*bubbleNode       // by number - 1
	made     map[[2]int]int      // bridges between two nodes, the lower number first
	cables   []*bubbleCable      // all that were made
	ledgers  map[uint32]*ledger  // by id
	doing    map[*string]*ledger // what goroutines of connections are doing
	failures []string
}

func (w *bubbleWorld) fail(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.failures = append(w.failures, fmt.Sprintf("at %v: ", w.now())+fmt.Sprintf(format, args...))
}

func (w *bubbleWorld) failed() bool { return len(w.all()) > 0 }

// all returns the failures so far.
func (w *bubbleWorld) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.failures)
}

// bubbleEpoch is the time at which the clock of each bubble begins.
var bubbleEpoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func (w *bubbleWorld) now() time.Duration { return time.Since(bubbleEpoch) }

// timed fails if f takes longer than limit by the bubble's clock.
func (w *bubbleWorld) timed(limit time.Duration, what string, f func()) {
	begin := time.Now()
	f()
	if took := time.Since(begin); took > limit {
		w.fail("%s took %v, want at most %v", what, took, limit)
	}
}

// wrap is called for each bridge.
func (w *bubbleWorld) wrap(from, to int, a, b ntb.Device) (ntb.Device, ntb.Device) {
	w.mu.Lock()
	defer w.mu.Unlock()
	// This is the same whichever of the two began, and however many others were made
	// before.
	pair := [2]int{min(from, to), max(from, to)}
	i := 64*pair[0] + 8*pair[1] + w.made[pair]
	w.made[pair]++
	f := w.plan.faults[i%len(w.plan.faults)]
	f.flaw = w.flaw
	c := newBubbleCable(f, w.plan.seed<<16+uint64(i)<<8, w.nodes[from-1], w.nodes[to-1], a, b)
	w.cables = append(w.cables, c)
	return c.ends[0], c.ends[1]
}

func (w *bubbleWorld) cablesOf(n *bubbleNode) (all []*bubbleCable) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, c := range w.cables {
		if c.nodes[0] == n || c.nodes[1] == n {
			all = append(all, c)
		}
	}
	return all
}

func (w *bubbleWorld) node(number int) *bubbleNode {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.nodes[number-1]
}

const bubblePort = "7"

// open opens a node with a number.
func (w *bubbleWorld) open(number int) {
	n := &bubbleNode{world: w, number: number, running: make(chan struct{})}
	close(n.running)
	p := w.plan
	spec := &spec.Spec{
		Meeting: spec.Meeting{Topology: spec.Topology{Kind: p.shape.topology, Node: number, Nodes: p.nodes}, Name: "bubble", Backend: "mem"},
		Local:   spec.Local{Window: p.window},
		Links:   spec.Links{Options: ring.Options{Lanes: p.lanes, Slots: p.slots, FrameBytes: p.frame, Failover: p.shape.failover, Retention: p.retention}},
	}
	s := newStack(bounce.Options{Buffer: p.buffer})
	s.refs, s.bubble = 1, true
	n.fabric = newFabric(s, &networkCounters{})
	w.mu.Lock()
	w.nodes[number-1] = n
	w.mu.Unlock()
	f, err := w.hub.Open(spec, func(f *fabric.Fabric) { s.fabric = f; s.start(f) })
	if err != nil {
		w.fail("open node %d: %v", number, err)
		return
	}
	s.fabric = f
	ln, err := n.fabric.Listen("sdp", ":"+bubblePort)
	if err != nil {
		w.fail("listen on node %d: %v", number, err)
		return
	}
	w.sure.Go(func() { n.accept(ln.(*Listener)) })
	w.sure.Go(n.readStats)
}

// accept serves all connections to the node. Its deadlines pass, and now and then it
// closes its listener and opens it again.
func (n *bubbleNode) accept(ln *Listener) {
	w := n.world
	rng := rand.New(rand.NewPCG(w.plan.seed, 100+uint64(n.number)))
	for {
		n.gate()
		at := time.Now().Add(time.Duration(rng.Int64N(int64(time.Second))))
		ln.SetDeadline(at)
		c, err := ln.Accept()
		switch late := time.Since(at); {
		case err == nil:
			n.gate()
			w.jobs.Go(func() { w.serve(n, c.(*Conn)) })
		case n.closed.Load():
			return
		case !isTimeout(err):
			w.fail("accept on node %d: %v", n.number, err)
			return
		case late < 0 || late > slack:
			w.fail("accept on node %d returned %v after its deadline", n.number, late)
		}
	}
}

// readStats reads the Fabric's counters, which must not wait.
func (n *bubbleNode) readStats() {
	rng := rand.New(rand.NewPCG(n.world.plan.seed, 200+uint64(n.number)))
	for !n.closed.Load() {
		n.world.timed(0, "Fabric.Stats", func() { n.fabric.Stats() })
		time.Sleep(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
	}
}

// close closes the node's Fabric.
func (n *bubbleNode) close() {
	if n.closed.Swap(true) {
		return
	}
	n.world.timed(hostLimit, fmt.Sprintf("Fabric.Close of node %d", n.number), func() { n.fabric.Close() })
}

// happen makes an event happen.
func (w *bubbleWorld) happen(e *bubbleEvent) {
	n := w.node(e.node)
	if e.hazard != stops {
		w.broken.Store(true)
	}
	switch e.hazard {
	case cuts:
		for _, c := range w.cablesOf(n) {
			if c.nodes[0].number == e.other || c.nodes[1].number == e.other {
				c.cut()
			}
		}
	case stops:
		n.stop()
		time.Sleep(e.lasts)
		n.goOn()
	case deaths, restarts:
		if n.dead.Swap(true) {
			return
		}
		w.hub.Kill(e.node)
		for _, c := range w.cablesOf(n) {
			if !e.drop {
				c.ends[0].out.drain()
				c.ends[1].out.drain()
			}
			c.cut()
		}
		// What is left of it ends unnoticed.
		w.sure.Go(n.close)
		if e.hazard == restarts {
			time.Sleep(e.lasts)
			w.open(e.node)
		}
	}
}

// run runs the whole bubble.
func (w *bubbleWorld) run() {
	over := make(chan struct{})
	defer close(over)
	go w.publishClock(over)
	w.hub = fabric.NewMemHosts(w.wrap)
	w.ledgers, w.doing, w.made = map[uint32]*ledger{}, map[*string]*ledger{}, map[[2]int]int{}
	w.nodes = make([]*bubbleNode, w.plan.nodes)
	for i := range w.nodes {
		w.open(i + 1)
	}
	var events sync.WaitGroup
	for _, e := range w.plan.events {
		events.Go(func() {
			time.Sleep(e.at)
			w.happen(&e)
		})
	}
	for i, t := range w.plan.talks {
		w.jobs.Go(func() { w.dial(uint32(i), &t) })
	}
	done := make(chan struct{})
	go func() {
		events.Wait()
		w.well.Store(int64(w.now()) + 1)
		w.jobs.Wait()
		close(done)
	}()
	if !w.plan.has(ends) {
		if !w.waitFor(done) {
			return
		}
		w.checkFree()
	} else {
		time.Sleep(w.plan.endAt)
	}
	w.broken.Store(true)
	w.ending.Store(true)
	events.Wait() // no node begins after this
	closed := make(chan struct{})
	for _, i := range rand.New(rand.NewPCG(w.plan.seed, 4)).Perm(len(w.nodes)) {
		w.sure.Go(w.node(i + 1).close)
	}
	go func() {
		w.jobs.Wait()
		w.sure.Wait()
		close(closed)
	}()
	if !w.waitFor(closed) {
		return
	}
	// What is under way in goroutines of the Fabrics ends now. The end of this goroutine
	// shows whether any is left.
	time.Sleep(freeLimit)
	w.mu.Lock()
	cables := w.cables
	w.mu.Unlock()
	for i, c := range cables {
		for j, e := range c.ends {
			if !e.closed.Load() {
				w.fail("the memory of bridge %d, node %d, is never released", i, c.nodes[j].number)
			}
		}
	}
}

// publishClock shows outside of the bubble that its time goes on.
func (w *bubbleWorld) publishClock(over chan struct{}) {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			w.clock.Store(int64(w.now()))
		case <-over:
			return
		}
	}
}

// waitFor waits until done is closed, or nothing makes progress any more. It reports
// whether done was closed.
func (w *bubbleWorld) waitFor(done chan struct{}) bool {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	begin := w.now()
	for {
		select {
		case <-done:
			return !w.failed()
		case <-tick.C:
		}
		if w.failed() {
			return false
		}
		if stuck := w.stuck(begin); stuck != "" {
			w.fail("%s\n%s", stuck, bubbleOf(ownBubble()))
			return false
		}
	}
}

// stuck returns which connections make no progress although nothing happens to the
// fabric.
func (w *bubbleWorld) stuck(begin time.Duration) string {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := w.now()
	if well := time.Duration(w.well.Load()); well != 0 {
		for what, l := range w.doing {
			if last := max(well, begin, time.Duration(l.progress.Load())); now-last > stuckAfter {
				return fmt.Sprintf("connection %d makes no progress: %s", l.id, *what)
			}
		}
	}
	if now-begin > bubbleLife {
		return "the bubble does not end"
	}
	return ""
}

// checkFree fails if closed connections hold anything. It waits until both sides know
// that they are closed.
func (w *bubbleWorld) checkFree() {
	held := ""
	for end := time.Now().Add(freeLimit); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		held = ""
		for i := range w.nodes {
			if n := w.node(i + 1); !n.closed.Load() {
				held += n.held()
			}
		}
		if held == "" {
			return
		}
	}
	w.fail("held %v after everything was closed:%s", freeLimit, held)
}

// held returns what connections hold.
func (n *bubbleNode) held() string {
	s := n.fabric.stack
	_, handlers := s.up()
	var b strings.Builder
	for _, h := range handlers {
		if u := h.pool.Used(); u != (bounce.Used{}) {
			fmt.Fprintf(&b, " node %d for %v: %+v;", n.number, h.pool.Peer().ID(), u)
		}
	}
	for _, t := range s.fabric.Tunnels() {
		if t.State != arq.Up {
			fmt.Fprintf(&b, " node %d has a tunnel to %s: %+v;", n.number, t.Peer, t)
		}
	}
	n.fabric.mu.Lock()
	defer n.fabric.mu.Unlock()
	if len(n.fabric.users) > 1 { // its listener
		fmt.Fprintf(&b, " Fabric of node %d: %d users;", n.number, len(n.fabric.users))
	}
	return b.String()
}

// dialOf dials a node within a limit.
func (n *bubbleNode) dialOf(to int, limit time.Duration) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	return n.fabric.DialContext(ctx, "sdp", fmt.Sprintf("node%d:%s", to, bubblePort))
}
