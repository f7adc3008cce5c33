package arq

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/testing/explore"
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

// smallWorld is a world with a budget.
type smallWorld struct {
	*world
	left budget
}

func (s *smallWorld) Clone() *smallWorld { return &smallWorld{s.clone(), s.left} }
func (s *smallWorld) Key() string        { return fmt.Sprint(s.left) + s.key() }
func (s *smallWorld) Settle()            { s.settle() }
func (s *smallWorld) Wrong() string      { return s.wrong }

func (s *smallWorld) Steps() []explore.Step[*smallWorld] {
	var steps []explore.Step[*smallWorld]
	add := func(do func(s *smallWorld) bool, what ...any) {
		steps = append(steps, explore.Step[*smallWorld]{Name: fmt.Sprint(what...), Do: do})
	}
	for i := range s.sides {
		add(func(s *smallWorld) bool { return s.send(i) }, "send ", i)
		if s.left.stores[i] > 0 {
			add(func(s *smallWorld) bool { s.left.stores[i]--; return s.store(i, 1) }, "store ", i)
		}
		if s.left.asks[i] > 0 {
			add(func(s *smallWorld) bool { s.left.asks[i]--; return s.ask(i) }, "ask ", i)
		}
		if s.left.leaves[i]&1 != 0 {
			add(func(s *smallWorld) bool { s.left.leaves[i] &^= 1; return s.leave(i, false) }, "disable ", i)
		}
		if s.left.leaves[i]&2 != 0 {
			add(func(s *smallWorld) bool { s.left.leaves[i] = 0; return s.leave(i, true) }, "close ", i)
		}
	}
	for j, p := range s.flight {
		add(func(s *smallWorld) bool { s.deliver(j, false); return true }, "deliver ", p)
		if s.left.losses > 0 {
			add(func(s *smallWorld) bool { s.left.losses--; s.lose(j); return true }, "lose ", p)
		}
		if s.left.twice > 0 {
			add(func(s *smallWorld) bool { s.left.twice--; s.deliver(j, true); return true }, "repeat ", p)
		}
	}
	if s.left.ways > 0 {
		add(func(s *smallWorld) bool { s.left.ways--; return s.restart(0) }, "way")
	}
	if s.left.passes > 0 {
		add(func(s *smallWorld) bool { s.left.passes--; return s.pass() }, "pass")
	}
	return steps
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

func small(fl fault, b budget) (wrong string, states int) {
	room := 16
	if b.window > 0 {
		room = b.window
	}
	w := newWorld(fl, 1<<32-2, 1, Config{Buf: make([]byte, room), Frames: 16, AckAt: 4})
	return explore.Small(&smallWorld{w, b}, 3_000_000)
}

func TestSmallCasesDeliverInOrderOnce(t *testing.T) {
	explore.Once(t)
	for _, c := range smallCases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			wrong, states := small(noFault, c.budget)
			require.Empty(t, wrong)
			t.Logf("%d states", states)
		})
	}
}
