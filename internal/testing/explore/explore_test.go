package explore

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// fault is a mistake of the world below.
type fault string

const (
	noFault    fault = ""
	forgets    fault = "what was put last is lost"
	takesNewer fault = "what was put last is taken first"
)

var faults = []fault{forgets, takesNewer}

// queue is a world with a queue, to which left more numbers may be added.
type queue struct {
	fault     fault
	list      []int
	put, took int
	left      int
	wrong     string
}

func (q *queue) Clone() *queue {
	c := *q
	c.list = slices.Clone(q.list)
	return &c
}

func (q *queue) Key() string { return fmt.Sprint(q.list, q.put, q.took, q.left) }

func (q *queue) Wrong() string { return q.wrong }

func (q *queue) Steps() []Step[*queue] {
	return []Step[*queue]{{"put", (*queue).add}, {"take", (*queue).take}}
}

func (q *queue) Settle() {
	for q.take() {
	}
	if q.took != q.put && q.wrong == "" {
		q.wrong = fmt.Sprintf("%d of %d are missing", q.put-q.took, q.put)
	}
}

func (q *queue) add() bool {
	if q.left == 0 {
		return false
	}
	q.left--
	q.put++
	if q.fault == forgets && q.put == 3 {
		return true
	}
	q.list = append(q.list, q.put)
	return true
}

func (q *queue) take() bool {
	if len(q.list) == 0 {
		return false
	}
	i := 0
	if q.fault == takesNewer {
		i = len(q.list) - 1
	}
	q.took++
	if q.list[i] != q.took && q.wrong == "" {
		q.wrong = fmt.Sprintf("got %d, want %d", q.list[i], q.took)
	}
	q.list = slices.Delete(q.list, i, i+1)
	return true
}

func run(fl fault, seed uint64) (string, Trace) {
	rng := rand.New(rand.NewPCG(seed, 0))
	q := &queue{fault: fl, left: 10}
	trace := Begin(seed)
	for range 20 {
		s := q.Steps()[rng.IntN(2)]
		trace.Note(s.Name, s.Do(q))
	}
	q.Settle()
	return q.wrong, trace
}

func small(fl fault) string {
	wrong, _ := Small(&queue{fault: fl, left: 3}, 100)
	return wrong
}

func TestSmallVisitsEachStateOnce(t *testing.T) {
	wrong, states := Small(&queue{left: 3}, 100)
	require.Empty(t, wrong)
	require.Equal(t, 4+3+2+1, states, "each number of puts, with each number of takes")
	wrong, _ = Small(&queue{left: 3}, 9)
	require.Equal(t, "too many states", wrong)
}

func TestSmallSaysHowItWentWrong(t *testing.T) {
	require.Equal(t, "got 2, want 1, in the end, after [put put]", small(takesNewer))
	require.Equal(t, "1 of 3 are missing, in the end, after [put put put]", small(forgets))
}

func TestSeedsOfAQueue(t *testing.T) {
	ran := 0
	Seeds(t, 100, func(seed uint64) (string, Trace) { ran++; return run(noFault, seed) })
	require.Positive(t, ran)
}

func TestSeedsFindPlantedFaults(t *testing.T) { Planted(t, faults, run, small) }

func TestTraceDependsOnAllThatHappens(t *testing.T) {
	of := func(seed uint64, what ...string) Trace {
		tr := Begin(seed)
		for _, s := range what {
			tr.Note(s)
		}
		return tr
	}
	all := []Trace{of(0), of(1), of(0, "a"), of(0, "b"), of(0, "a", "b"), of(0, "b", "a"), of(1, "a", "b")}
	slices.Sort(all)
	require.Len(t, slices.Compact(all), 7)
	require.Equal(t, of(3, "a", "b"), of(3, "a", "b"))
	var none Trace
	none.Note("a")
	require.Zero(t, none)
}

func TestChoicesMakesEachSequenceOnce(t *testing.T) {
	var all []string
	two := func(choose func(int) int) string {
		made := fmt.Sprint(choose(2))
		if made == "1" {
			made += fmt.Sprint(choose(3), choose(1))
		}
		all = append(all, made)
		return ""
	}
	wrong, runs := Choices(10, two)
	require.Empty(t, wrong)
	require.Equal(t, 4, runs)
	require.Equal(t, []string{"0", "10 0", "11 0", "12 0"}, all)
	wrong, _ = Choices(3, two)
	require.Equal(t, "too many runs", wrong)
	wrong, runs = Choices(10, func(choose func(int) int) string {
		if choose(2) == 1 && choose(2) == 0 {
			return "found"
		}
		return ""
	})
	require.Equal(t, "found, by choices [1 0]", wrong)
	require.Equal(t, 2, runs)
}
