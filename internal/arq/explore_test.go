package arq

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// budget is how often each thing may happen in a small case.
type budget struct {
	stores [2]int // by side, of one byte, each in a frame of its own
	asks   [2]int // by side
	leaves [2]int // by side: 1 disables, 2 closes, 3 does either
	losses int
	twice  int // frames that arrive once more
	ways   int // changes of the asker's way
	passes int // deadlines that pass before the end
	window int // frames that each side keeps at most; 0: as many as it stores
}

// explorer visits every state that a small case can be in.
type explorer struct {
	seen  map[string]struct{}
	limit int
}

// visit visits w and all that can follow. It returns what went wrong first, and how.
func (x *explorer) visit(w *world, b budget, path []string) (wrong string) {
	if w.wrong != "" {
		return fmt.Sprint(w.wrong, ", after ", path)
	}
	key := fmt.Sprint(b) + w.key()
	if _, ok := x.seen[key]; ok {
		return ""
	}
	x.seen[key] = struct{}{}
	if len(x.seen) > x.limit {
		return "too many states"
	}
	end := w.clone()
	if end.settle(); end.wrong != "" {
		return fmt.Sprint(end.wrong, ", in the end, after ", path)
	}
	try := func(what string, b budget, do func(w *world) bool) bool {
		next := w.clone()
		if do(next) {
			wrong = x.visit(next, b, append(path[:len(path):len(path)], what))
		}
		return wrong != ""
	}
	for i := range w.sides {
		if try(fmt.Sprint("send ", i), b, func(w *world) bool { return w.send(i) }) {
			return wrong
		}
		if c := b; c.stores[i] > 0 {
			c.stores[i]--
			if try(fmt.Sprint("store ", i), c, func(w *world) bool { return w.store(i, 1) }) {
				return wrong
			}
		}
		if c := b; c.asks[i] > 0 {
			c.asks[i]--
			if try(fmt.Sprint("ask ", i), c, func(w *world) bool { return w.ask(i) }) {
				return wrong
			}
		}
		for how := 1; how <= 2; how++ {
			if c := b; c.leaves[i]&how != 0 {
				c.leaves[i] &^= how
				if how == 2 {
					c.leaves[i] = 0
				}
				if try(fmt.Sprint("leave ", i, how), c, func(w *world) bool { return w.leave(i, how == 2) }) {
					return wrong
				}
			}
		}
	}
	for j, p := range w.flight {
		if try(fmt.Sprint("deliver ", p), b, func(w *world) bool { w.deliver(j, false); return true }) {
			return wrong
		}
		if c := b; c.losses > 0 {
			c.losses--
			if try(fmt.Sprint("lose ", p), c, func(w *world) bool { w.lose(j); return true }) {
				return wrong
			}
		}
		if c := b; c.twice > 0 {
			c.twice--
			if try(fmt.Sprint("repeat ", p), c, func(w *world) bool { w.deliver(j, true); return true }) {
				return wrong
			}
		}
	}
	if c := b; c.ways > 0 {
		c.ways--
		if try("way", c, func(w *world) bool { return w.restart(0) }) {
			return wrong
		}
	}
	if c := b; c.passes > 0 {
		c.passes--
		try("pass", c, func(w *world) bool { return w.pass() })
	}
	return wrong
}

// smallCases are explored exhaustively: each order in which their frames are sent, arrive,
// are lost, and arrive again. The ones with few states come first.
var smallCases = []struct {
	name string
	budget
}{
	{"nothing is lost", budget{stores: [2]int{2, 2}, leaves: [2]int{1, 0}}},
	{"both end", budget{leaves: [2]int{2, 2}, losses: 1, passes: 1}},
	{"requests", budget{stores: [2]int{1, 0}, asks: [2]int{1, 0}, losses: 1, twice: 1, passes: 1}},
	{"a small window", budget{stores: [2]int{4, 0}, losses: 1, passes: 1, window: 2}},
	{"another way", budget{stores: [2]int{2, 0}, losses: 1, ways: 1, passes: 1}},
	{"the asker ends", budget{stores: [2]int{1, 0}, leaves: [2]int{3, 0}, losses: 1, twice: 1, passes: 1}},
	{"both ways", budget{stores: [2]int{1, 1}, losses: 1, twice: 1, passes: 1}},
	{"data", budget{stores: [2]int{3, 0}, losses: 1, twice: 1, passes: 1}},
	{"the other ends", budget{stores: [2]int{0, 1}, leaves: [2]int{0, 3}, losses: 1, passes: 1}},
}

func explore(fl fault, b budget) (wrong string, states int) {
	x := explorer{seen: map[string]struct{}{}, limit: 3_000_000}
	room := 16
	if b.window > 0 {
		room = b.window
	}
	w := newWorld(fl, 1<<32-2, 1, Config{Buf: make([]byte, room), Frames: 16, AckAt: 4})
	return x.visit(w, b, nil), len(x.seen)
}

func TestSmallCasesDeliverInOrderOnce(t *testing.T) {
	cases := smallCases
	if testing.Short() {
		cases = cases[:4]
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			wrong, states := explore(noFault, c.budget)
			require.Empty(t, wrong)
			t.Logf("%d states", states)
		})
	}
}
