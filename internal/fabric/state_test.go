package fabric

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/testing/explore"
	"github.com/stretchr/testify/require"
)

// fault is a mistake of a world, in place of state.after.
type fault string

const (
	noFault    fault = ""
	bothGoOn   fault = "both ends go on if both ask"
	neither    fault = "no end goes on if both ask"
	lateAnswer fault = "an answer counts though the other end's question was taken"
	lateNo     fault = "a refusal ends what the other end has asked for"
	forgets    fault = "the link from before is forgotten if a new one is not made"
	deaf       fault = "an end whose neighbour did not run is not asked"
)

var faults = []fault{bothGoOn, neither, lateAnswer, lateNo, forgets, deaf}

// question is a cable between the two ends of a world, which one has connected to ask.
type question struct {
	from     int
	waits    bool // that end waits for the answer
	answered bool
	agree    [2]bool // this end is making the link of it
	cut      bool    // an end has hung up
}

// wireWorld is a world: a wire, by whose ends two processes run. The one at end 0 is first.
type wireWorld struct {
	fault   fault
	state   [2]state
	runs    [2]bool
	link    [2]int // that came up last at this end, by number; 0 for none
	alive   int    // the link that is not down; 0 for none
	cables  []*question
	left    int // how much may still happen besides what follows
	numbers int
	wrong   string
}

func newWire(fl fault, left int) *wireWorld {
	return &wireWorld{fault: fl, runs: [2]bool{true, true}, left: left}
}

// Clone implements explore.World.
func (w *wireWorld) Clone() *wireWorld {
	c := *w
	c.cables = nil
	for _, o := range w.cables {
		own := *o
		c.cables = append(c.cables, &own)
	}
	return &c
}

// Key implements explore.World. What the links' numbers are does not matter.
func (w *wireWorld) Key() string {
	is := [2]string{}
	for i := range is {
		is[i] = fmt.Sprint(w.link[i] == 0, w.link[i] == w.alive)
	}
	key := fmt.Sprint(w.state, w.runs, is, w.alive == 0, w.left)
	for _, c := range w.cables {
		key += fmt.Sprint(*c)
	}
	return key
}

// Wrong implements explore.World.
func (w *wireWorld) Wrong() string { return w.wrong }

func (w *wireWorld) fail(format string, args ...any) {
	if w.wrong == "" {
		w.wrong = fmt.Sprintf(format, args...)
	}
}

// step is state.after, or a mistake.
func (w *wireWorld) step(i int, e event) bool {
	s := w.state[i]
	next, ok := s.after(e, i == 0)
	switch {
	case w.fault == bothGoOn && e == asked && s == asking:
		next, ok = making, true
	case w.fault == neither && e == asked && s == asking:
		ok = false
	case w.fault == lateAnswer && e == agreed && s == making:
		next, ok = making, true
	case w.fault == lateNo && e == refused && s == making:
		next, ok = down, true
	case w.fault == forgets && e == kept:
		next = down
	case w.fault == deaf && e == asked && s == absent:
		ok = false
	}
	if ok {
		w.state[i] = next
	}
	return ok
}

// check checks what holds in each state.
func (w *wireWorld) check() {
	for i, s := range w.state {
		n := 0
		for _, c := range w.cables {
			if c.agree[i] {
				n++
			}
		}
		switch {
		case n > 1 || (n == 1) != (s == making):
			w.fail("end %d is %v and makes the link of %d cables", i, s, n)
		case s == up && w.link[i] == 0:
			w.fail("end %d is up without a link", i)
		case s != up && s != making && w.alive != 0 && w.link[i] == w.alive:
			w.fail("end %d is %v, and its link is alive", i, s)
		}
	}
}

func (w *wireWorld) Steps() []explore.Step[*wireWorld] {
	var all []explore.Step[*wireWorld]
	add := func(name string, do func(*wireWorld) bool) {
		all = append(all, explore.Step[*wireWorld]{Name: name, Do: func(w *wireWorld) bool {
			ok := do(w)
			w.check()
			return ok
		}})
	}
	for i := range 2 {
		add(fmt.Sprint("ask ", i), func(w *wireWorld) bool { return w.ask(i) })
		add(fmt.Sprint("learn ", i), func(w *wireWorld) bool { return w.learn(i) })
		add(fmt.Sprint("look ", i), func(w *wireWorld) bool { return w.look(i) })
		add(fmt.Sprint("dial ", i), func(w *wireWorld) bool { return w.dial(i) })
		add(fmt.Sprint("stop ", i), func(w *wireWorld) bool { return w.may() && w.stop(i) })
		add(fmt.Sprint("start ", i), func(w *wireWorld) bool { return w.start(i) })
	}
	add("cut", func(w *wireWorld) bool { return w.alive != 0 && w.may() && w.down() })
	for n := range w.cables {
		add(fmt.Sprint("answer ", n), func(w *wireWorld) bool { return w.answer(w.cables[n]) })
		add(fmt.Sprint("hear ", n), func(w *wireWorld) bool { return w.hear(w.cables[n]) })
		add(fmt.Sprint("up ", n), func(w *wireWorld) bool { return w.bringUp(w.cables[n]) })
		add(fmt.Sprint("break ", n), func(w *wireWorld) bool { return !w.cables[n].cut && w.may() && w.hangUp(w.cables[n]) })
		for i := range 2 {
			add(fmt.Sprint("give up ", n, i), func(w *wireWorld) bool { return w.giveUp(w.cables[n], i) })
		}
	}
	return all
}

// may takes one of what may still happen.
func (w *wireWorld) may() bool {
	w.left--
	return w.left >= 0
}

func (w *wireWorld) down() bool { w.alive = 0; return true }

func (w *wireWorld) hangUp(c *question) bool { c.cut = true; return true }

// stop ends the process at an end.
func (w *wireWorld) stop(i int) bool {
	if !w.runs[i] {
		return false
	}
	w.runs[i], w.state[i], w.link[i] = false, down, 0
	w.down()
	for _, c := range w.cables {
		c.cut, c.agree[i] = true, false
		c.waits = c.waits && c.from != i
		c.answered = c.answered || c.from != i // nobody will
	}
	w.sweep()
	return true
}

func (w *wireWorld) start(i int) bool {
	if w.runs[i] {
		return false
	}
	w.runs[i] = true
	return true
}

// look is what keep does to a link that is down, if the other end does not run. Then it waits for that to ask.
func (w *wireWorld) look(i int) bool {
	return w.runs[i] && !w.runs[1-i] && w.state[i] == down && w.step(i, missed)
}

// dial is what a dial does to a link whose other end did not run.
func (w *wireWorld) dial(i int) bool {
	return w.runs[i] && w.runs[1-i] && w.state[i] == absent && w.step(i, found)
}

// ask is what keep does to a link that is down.
func (w *wireWorld) ask(i int) bool {
	if !w.runs[i] || !w.runs[1-i] || w.state[i] != down || !w.step(i, ask) {
		return false
	}
	w.cables = append(w.cables, &question{from: i, waits: true})
	return true
}

// answer is what the other end does then. It may not know yet that the first has hung up.
func (w *wireWorld) answer(c *question) bool {
	to := 1 - c.from
	if c.answered || !w.runs[to] {
		return false
	}
	c.answered = true
	c.agree[to] = w.step(to, asked)
	w.sweep()
	return true
}

// hear is what the end that has asked does with the answer, or without one.
func (w *wireWorld) hear(c *question) bool {
	if !c.waits || !c.answered && !c.cut {
		return false
	}
	c.waits = false
	yes := c.agree[1-c.from] && !c.cut
	if c.agree[c.from] = yes && w.step(c.from, agreed); !c.agree[c.from] {
		c.cut = true
		w.step(c.from, refused)
	}
	w.sweep()
	return true
}

// bringUp brings the link up at an end, and at the other one thereafter.
func (w *wireWorld) bringUp(c *question) bool {
	if c.cut || !c.agree[0] || !c.agree[1] {
		return false
	}
	w.numbers++
	w.alive = w.numbers // the one before is closed
	for i := range 2 {
		w.link[i] = w.numbers
		c.agree[i] = false
		w.step(i, made)
	}
	w.sweep()
	return true
}

// giveUp is what an end does that was making a link when the other one hung up.
func (w *wireWorld) giveUp(c *question, i int) bool {
	if !c.cut || !c.agree[i] {
		return false
	}
	c.agree[i] = false
	if w.alive != 0 && w.link[i] == w.alive {
		w.step(i, kept)
	} else {
		w.step(i, failed)
	}
	w.sweep()
	return true
}

// sweep removes cables that nobody uses.
func (w *wireWorld) sweep() {
	w.cables = slices.DeleteFunc(w.cables, func(c *question) bool {
		return c.answered && !c.waits && !c.agree[0] && !c.agree[1]
	})
}

// learn has an end learn that its link has ended.
func (w *wireWorld) learn(i int) bool {
	return w.state[i] == up && w.link[i] != w.alive && w.step(i, ended)
}

// Settle implements explore.World: both ends run, and do the same at the same time.
func (w *wireWorld) Settle() {
	w.left = 0
	w.start(0)
	w.start(1)
	all := func(do func(c *question) bool) {
		for _, c := range slices.Clone(w.cables) {
			do(c)
			w.check()
		}
	}
	for range 20 {
		for i := range 2 {
			w.learn(i)
			w.look(i)
			w.ask(i)
		}
		all(w.answer)
		all(w.hear)
		all(w.bringUp)
		for i := range 2 {
			all(func(c *question) bool { return w.giveUp(c, i) })
		}
	}
	if w.alive == 0 || w.link != [2]int{w.alive, w.alive} || w.state != [2]state{up, up} {
		w.fail("the ends are %v, with links %v of which %d is alive", w.state, w.link, w.alive)
	}
}

const moreThanStates = 1 << 20

func TestSmallCasesMakeOneLink(t *testing.T) {
	explore.Once(t)
	wrong, states := explore.Small(newWire(noFault, 3), moreThanStates)
	require.Empty(t, wrong)
	t.Log(states, "states")
}

// walk does what a seed says.
func walk(fl fault, seed uint64) (wrong string, trace explore.Trace) {
	rng := rand.New(rand.NewPCG(seed, 58))
	w := newWire(fl, 12)
	trace = explore.Begin(seed)
	for range 200 {
		all := w.Steps()
		s := all[rng.IntN(len(all))]
		if next := w.Clone(); s.Do(next) {
			w = next
			trace.Note(s.Name)
		}
		if w.Wrong() != "" {
			return w.Wrong(), trace
		}
	}
	w.Settle()
	return w.Wrong(), trace
}

func TestSeedsMakeOneLink(t *testing.T) {
	explore.Seeds(t, 1000, func(seed uint64) (string, explore.Trace) { return walk(noFault, seed) })
}

func TestSeedsFindFaultsOfLinks(t *testing.T) {
	explore.Once(t)
	explore.Planted(t, faults, walk, func(fl fault) string {
		wrong, _ := explore.Small(newWire(fl, 3), moreThanStates)
		return wrong
	})
}

// A node that did not fit is asked again for a dial that begins later, as another process may be there now.
func TestAMisfitIsTriedAgain(t *testing.T) {
	h := &Fabric{keeper: newKeeper()}
	l := &linkEnd{kind: toNode, wire: spec.Wire{Number: 1}, to: 2, state: down, err: greeting.ErrMismatch, since: time.Now(), by: socketWire{h}, hurry: make(chan struct{}, 1)}
	h.links = []*linkEnd{l}
	require.False(t, h.retry(2, l.since.Add(-time.Second)), "it was tried since the dial began")
	require.Empty(t, l.hurry)
	require.False(t, h.retry(3, l.since.Add(time.Second)), "another node")
	require.True(t, h.retry(2, l.since.Add(time.Second)))
	require.Len(t, l.hurry, 1, "it is tried now")
	require.True(t, h.retry(2, l.since.Add(time.Second)), "a second dial does not wait for the first one")
	require.True(t, h.step(l, ask))
	require.True(t, h.retry(2, l.since.Add(-time.Second)), "it is being tried")
	require.True(t, h.step(l, agreed))
	require.NoError(t, l.err, "an error ends with its neighbour")
}
