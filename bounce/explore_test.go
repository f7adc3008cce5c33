package bounce

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/testing/explore"
	"github.com/ntbnet/ntbnet/ntb"
)

// budget is how much may still happen in a small case.
type budget struct {
	puts, reserves int
	sizes          []int // of puts and reserves
	reads          []int // sizes of reads
	lends, grants  int
	fins           int
}

// smallCases are explored exhaustively: each order in which records are written, their stores
// arrive, they are read, and credit and grants are given and arrive.
var smallCases = []struct {
	name string
	// The queue begins where that many short records were written and read, and behind
	// them that many long ones were written and not read.
	read, unread int
	left         budget
}{
	{"a long record", 30, 0, budget{puts: 1, sizes: []int{100}, reads: []int{60, 512}, fins: 1}},
	{"short records", 3, 0, budget{puts: 2, sizes: []int{1}, reads: []int{1}}},
	{"many moves", 1, 0, budget{puts: 1, sizes: []int{300}, reads: []int{512}, grants: 3}},
	{"around the end", 29, 0, budget{puts: 2, sizes: []int{1, 200}, reads: []int{512}}},
	{"a full queue", 1, 3, budget{puts: 2, sizes: []int{448}, reads: []int{448}, fins: 1}},
	{"parts of records", 0, 3, budget{puts: 3, sizes: []int{448}, reads: []int{600}}},
	{"leases", 24, 2, budget{puts: 1, reserves: 1, sizes: []int{448}, reads: []int{512}, lends: 1}},
	{"a move", 2, 0, budget{puts: 2, sizes: []int{1}, reads: []int{2}, grants: 2}},
	{"a full queue moves", 1, 3, budget{puts: 1, sizes: []int{448}, reads: []int{300, 448}, grants: 1}},
}

func visit(fl fault, i int) (wrong string, states int) {
	c := smallCases[i]
	w := newWorld(fl, 1+min(c.left.grants, 2), 512, 1<<24-1, ^uint32(0)-uint32(c.read)-1)
	for range c.read {
		w.put(1)
		w.quiesce()
	}
	for range c.unread {
		w.put(448)
		for len(w.stores) > 0 {
			w.deliver(0)
		}
	}
	w.left = c.left
	return explore.Small(w, 1_000_000)
}

func (w *world) Steps() []explore.Step[*world] {
	var steps []explore.Step[*world]
	add := func(do func(*world) bool, what ...any) {
		steps = append(steps, explore.Step[*world]{Name: fmt.Sprint(what...), Do: do})
	}
	for _, n := range w.left.sizes {
		if w.left.puts > 0 {
			add(func(w *world) bool { w.left.puts--; return w.put(n) }, "put ", n)
		}
		if w.left.reserves > 0 {
			add(func(w *world) bool { w.left.reserves--; return w.reserve(n) }, "reserve ", n)
		}
		add(func(w *world) bool { return w.commit(n) }, "commit ", n)
	}
	for j := range w.stores {
		add(func(w *world) bool { return w.deliver(j) }, "deliver ", j)
	}
	for _, n := range w.left.reads {
		add(func(w *world) bool { return w.read(n) }, "read ", n)
		add(func(w *world) bool { return w.discard(n) }, "discard ", n)
	}
	if w.left.lends > 0 {
		add(func(w *world) bool { w.left.lends--; return w.lend() }, "lend")
	}
	if w.left.grants > 0 {
		add(func(w *world) bool { w.left.grants--; return w.enlarge(minQueue) }, "enlarge")
		add((*world).takeMoves, "take moves")
	}
	if w.left.fins > 0 {
		add(func(w *world) bool { w.left.fins--; return w.fin() }, "fin")
	}
	add(func(w *world) bool { return w.giveBack(false) }, "give back")
	add(func(w *world) bool { return w.giveBack(true) }, "give all back")
	add((*world).arrive, "arrive")
	add((*world).look, "look")
	return steps
}

func TestSmallCasesCarryEachByte(t *testing.T) {
	explore.Once(t)
	for i, c := range smallCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			wrong, states := visit(noFault, i)
			require.Empty(t, wrong)
			t.Logf("%d states", states)
		})
	}
}

// engine is a DMA engine that moves when it is told to.
type engine struct {
	w      *world
	room   int // copies that it takes
	memory int // queues that it may register
	copies []engineCopy
}

type engineCopy struct {
	off  int
	src  []byte
	done func(error)
}

func (e *engine) Alloc(n int) ([]byte, error) {
	if e.memory == 0 {
		return nil, errors.New("no more memory can be registered")
	}
	e.memory--
	return ntb.AlignedBytes(n), nil
}

func (e *engine) Free(mem []byte) {
	e.memory++
	clear(mem) // nobody reads it any more
}

func (e *engine) Start(off int, src []byte, done func(error)) bool {
	if len(e.copies) >= e.room {
		return false
	}
	e.copies = append(e.copies, engineCopy{off, src, done})
	return true
}

// complete ends the oldest copy, with an error or without. It reports whether there is one.
func (e *engine) complete(err error) bool {
	if e == nil || len(e.copies) == 0 {
		return false
	}
	c := e.copies[0]
	e.copies = slices.Delete(e.copies, 0, 1)
	if err == nil {
		copy(e.w.mem[c.off:], c.src)
	} else {
		copy(e.w.mem[c.off:], c.src[:len(c.src)/2])
	}
	c.done(err)
	return e.w.did("complete", err)
}

// run makes a world in which one number fixes every choice, and lets it end.
func run(fl fault, seed uint64) *world {
	rng := rand.New(rand.NewPCG(seed, 0))
	big := rng.IntN(4)
	gen := []uint32{1, 1<<24 - 2}[rng.IntN(2)]
	w := newWorld(fl, 4<<rng.IntN(4), line, gen, ^uint32(0)-uint32(rng.IntN(100)))
	w.trace = explore.Begin(seed)
	if rng.IntN(4) == 0 {
		w.engine = &engine{w: w, room: 1 + rng.IntN(3), memory: rng.IntN(4)}
		w.tx.dma = newDMA(w.engine, 1+rng.IntN(500), &bell{control: &control{here: ntb.AlignedBytes(line)}})
		w.tx.maxInline = min(maxInline, w.tx.dma.threshold-1)
		big = 3
	}
	size := func() int { return 1 + rng.IntN([]int{60, 300, 1000, 5000}[rng.IntN(1+big)]) }
	// How often each thing happens differs from world to world.
	weights := make([]int, 12)
	sum := 0
	for i := range weights {
		weights[i] = 1 + rng.IntN(10)
		if i < 7 {
			weights[i] += 10 // what moves data
		}
		sum += weights[i]
	}
	ends := rng.IntN(4) == 0
	for range 100 + rng.IntN(600) {
		what, n := 0, rng.IntN(sum)
		for ; n >= weights[what]; what++ {
			n -= weights[what]
		}
		switch what {
		case 0:
			w.put(size())
		case 1:
			for range rng.IntN(2 * (len(w.stores) + 1)) {
				if len(w.stores) > 0 {
					w.deliver(rng.IntN(min(len(w.stores), 20)))
				}
			}
		case 2, 3:
			w.read(size())
		case 4:
			w.giveBack(rng.IntN(2) == 0)
		case 5:
			w.arrive()
		case 6:
			w.look()
		case 7:
			if rng.IntN(3) == 0 {
				w.enlarge(minQueue << rng.IntN(4))
			}
			w.takeMoves()
		case 8:
			if w.room == nil && rng.IntN(4) == 0 {
				w.reserve(size())
			} else {
				w.commit(size())
			}
		case 9:
			if w.lent == nil && rng.IntN(3) == 0 {
				w.lend()
			} else {
				w.discard(size())
			}
		case 10:
			if rng.IntN(10) == 0 {
				w.limit(minQueue << rng.IntN(5))
			}
			if ends && rng.IntN(20) == 0 {
				w.fin()
			}
		case 11:
			if w.engine == nil {
				continue
			}
			for range 1 + rng.IntN(6) {
				if rng.IntN(9) > 0 {
					w.engine.complete(nil)
				} else {
					w.engine.complete(errors.New("the engine failed"))
				}
			}
			if rng.IntN(2) == 0 {
				w.tx.dma.flush()
			}
		}
		if w.wrong != "" {
			return w
		}
	}
	w.Settle()
	return w
}

// What is written is read, in order, however late stores, credit and grants arrive, and
// nothing that is not read is written over. Each seed determines all of it.
//
//	NTBNET_SEEDS=1000000 go test ./bounce -run Seeds
func TestSeedsCarryEachByte(t *testing.T) {
	bytes, laps, moves, dma := 0, 0, 0, uint64(0) // each run counts twice
	explore.Seeds(t, 1500, func(seed uint64) (string, explore.Trace) {
		w := run(noFault, seed)
		bytes += w.got
		laps += w.tx.done / w.tx.size
		moves += w.moves
		dma += w.tx.dma.stats().records
		return w.wrong, w.trace
	})
	require.Positive(t, bytes)
	t.Logf("%d bytes, %d laps, %d moves, %d records by an engine", bytes/2, laps/2, moves/2, dma/2)
}

func TestSeedsFindPlantedFaults(t *testing.T) {
	find := func(fl fault, seed uint64) (string, explore.Trace) { w := run(fl, seed); return w.wrong, w.trace }
	explore.Planted(t, faults, find, func(fl fault) (found string) {
		for i := range smallCases {
			if found, _ = visit(fl, i); found != "" {
				break
			}
		}
		return found
	})
}
