package sdp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// hazard is something that happens in a seed's fabric.
type hazard int

const (
	lateStores hazard = 1 << iota
	badBells          // doorbells are late, lost and repeated
	cuts
	stops    // a node does nothing for a while
	deaths   // a node is gone for good
	restarts // a node is gone, and another one begins in its place
	ends     // all Fabrics are closed with everything open
)

func (h hazard) String() string {
	var names []string
	for i, name := range []string{"late stores", "bad doorbells", "cuts", "stops", "deaths", "restarts", "ends"} {
		if h&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// hazardsOf are the sets of hazards among which a seed chooses.
var hazardsOf = []hazard{
	lateStores,
	badBells,
	lateStores | badBells | ends,
	lateStores | cuts,
	lateStores | stops,
	lateStores | deaths,
	lateStores | restarts,
	lateStores | badBells | cuts | stops | deaths | restarts | ends,
}

// shape is how the hosts of a seed are cabled.
type shape struct {
	topology string
	failover bool
}

var shapes = []shape{{"mesh", false}, {"line", false}, {"ring", false}, {"ring", true}}

// bubblePlan is what happens in a bubble. All of it is a function of the seed.
type bubblePlan struct {
	seed    uint64
	shape   shape
	hazards hazard
	nodes   int

	parallel bool // the bubble uses all processors

	lanes, slots, frame, retention, window, buffer int

	faults []cableFaults // for the cables, in turn
	talks  []bubbleTalk
	events []bubbleEvent
	endAt  time.Duration // when all Fabrics are closed, if ends is a hazard
}

func (p *bubblePlan) String() string {
	failover := ""
	if p.shape.failover {
		failover = " with failover"
	}
	return fmt.Sprintf("%s of %d%s: %v", p.shape.topology, p.nodes, failover, p.hazards)
}

// has reports whether the plan has any of the hazards.
func (p *bubblePlan) has(h hazard) bool { return p.hazards&h != 0 }

// bubbleEvent is something that happens at a time.
type bubbleEvent struct {
	at     time.Duration
	hazard hazard
	node   int
	other  int           // for a cut
	lasts  time.Duration // for a stop; for a death until another node begins
	drop   bool          // for a death: what was under way vanishes
}

// ending is how a connection ends.
type ending int

const (
	orderly ending = iota // both sides write all, read all and close
	aborted               // one side gives up at some time
	early                 // one side closes at some time
)

// bubbleTalk is a connection.
type bubbleTalk struct {
	from, to int
	at       time.Duration
	limit    time.Duration // of the dial
	ways     [2]bubbleWay  // from the dialling endpoint, and to it
	ending   ending
	ender    int           // the endpoint that ends it
	endAfter time.Duration // after the dial
}

// bubbleWay is one direction of a connection.
type bubbleWay struct {
	total         int
	most          int           // largest write
	mostRead      int           // largest read
	lease         bool          // the writer reserves
	peek          bool          // the reader peeks
	pause         time.Duration // longest pause between two calls; 0 for none
	writeDeadline time.Duration // longest deadline from a call on; 0 for none
	readDeadline  time.Duration
}

const eventSpan = 2 * time.Second

func planOf(seed uint64) *bubblePlan {
	rng := rand.New(rand.NewPCG(seed, 1))
	upTo := func(d time.Duration) time.Duration { return time.Duration(rng.Int64N(int64(d) + 1)) }
	p := &bubblePlan{
		seed:    seed,
		hazards: hazardsOf[seed%uint64(len(hazardsOf))],
		shape:   shapes[seed/uint64(len(hazardsOf))%uint64(len(shapes))],
		nodes:   2 + rng.IntN(4), parallel: rng.IntN(4) == 0,
		lanes: 1 + rng.IntN(2), slots: 2 + rng.IntN(4), frame: []int{256, 1024, 4096}[rng.IntN(3)],
		window: 128 << 10, buffer: []int{4 << 10, 64 << 10}[rng.IntN(2)],
		endAt: upTo(eventSpan),
	}
	p.retention = max(4*p.frame, []int{4 << 10, 64 << 10}[rng.IntN(2)])
	if p.shape.failover {
		p.nodes = max(p.nodes, 3)
	}
	for range 8 {
		var f cableFaults
		if p.has(lateStores) && rng.IntN(4) > 0 {
			f.late = []time.Duration{10 * time.Microsecond, 100 * time.Microsecond, time.Millisecond, 5 * time.Millisecond}[rng.IntN(4)]
		}
		if p.has(badBells) {
			f.lateBells = upTo(time.Millisecond)
			f.repeat = float64(rng.IntN(2)) * 0.3
			f.drop = []float64{0, 0.01, 0.1}[rng.IntN(3)]
		}
		p.faults = append(p.faults, f)
	}
	for range 4 + rng.IntN(9) {
		t := bubbleTalk{
			from: 1 + rng.IntN(p.nodes), at: upTo(eventSpan / 2), limit: 30 * time.Second,
			ending: ending(max(0, rng.IntN(6)-3)), ender: rng.IntN(2), endAfter: upTo(200 * time.Millisecond),
		}
		t.to = 1 + (t.from+rng.IntN(p.nodes-1))%p.nodes
		if rng.IntN(4) == 0 {
			t.limit = upTo(50 * time.Millisecond)
		}
		for i := range t.ways {
			w := &t.ways[i]
			w.total = rng.IntN(100 << rng.IntN(11))
			w.most = 1 + w.total/(1+rng.IntN(16))
			w.mostRead = 1 + w.total/(1+rng.IntN(16))
			w.lease, w.peek = rng.IntN(4) == 0, rng.IntN(4) == 0
			if rng.IntN(3) == 0 {
				w.pause = upTo(50 * time.Millisecond)
			}
			if rng.IntN(3) == 0 {
				w.writeDeadline = upTo(20 * time.Millisecond)
			}
			if rng.IntN(3) == 0 {
				w.readDeadline = upTo(20 * time.Millisecond)
			}
		}
		p.talks = append(p.talks, t)
	}
	add := func(h hazard, n int, lasts time.Duration) {
		for range n {
			e := bubbleEvent{at: upTo(eventSpan), hazard: h, node: 1 + rng.IntN(p.nodes), lasts: upTo(lasts), drop: rng.IntN(2) == 0}
			e.other = 1 + e.node%p.nodes
			if p.has(h) {
				p.events = append(p.events, e)
			}
		}
	}
	add(cuts, 1+rng.IntN(4), 0)
	add(stops, 1+rng.IntN(3), 3*time.Second)
	add(deaths, 1, 0)
	add(restarts, 1+rng.IntN(2), 2*time.Second)
	slices.SortStableFunc(p.events, func(a, b bubbleEvent) int { return int(a.at - b.at) })
	return p
}
