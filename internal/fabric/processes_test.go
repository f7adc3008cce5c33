package fabric

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/explore"
	"github.com/stretchr/testify/require"
)

// try is a link that one of two processes makes to the other, as each of them sees it.
type try struct {
	from     int
	state    [2]state
	answered bool
	cut      bool // the cable, or the link
}

func (t *try) up() bool { return t.state == [2]state{up, up} && !t.cut }

// dialWorld is a world: two processes of a host, which dial each other. Their links are made once. What dials do is
// modelled here; which state follows an event is state.after.
type dialWorld struct {
	fault fault
	all   []*try  // Links that were asked for.
	uses  [2]*try // The link that a process' dials use.
	waits [2]bool // A dial waits for what it has begun.
	left  int     // So many links may still be cut.
	dials int     // So many dials may still begin.
	wrong string
}

const (
	stuck fault = "a link that is refused stays as it is"
	stale fault = "dials use a link that is down"
	whole fault = "a link is not made while the other side makes one"
)

// Clone implements explore.World.
func (w *dialWorld) Clone() *dialWorld {
	c := *w
	c.all = nil
	for _, t := range w.all {
		own := *t
		c.all = append(c.all, &own)
		for i := range 2 {
			if w.uses[i] == t {
				c.uses[i] = &own
			}
		}
	}
	return &c
}

// Key implements explore.World.
func (w *dialWorld) Key() string {
	key := fmt.Sprint(w.waits, w.left, w.dials)
	for _, t := range w.all {
		key += fmt.Sprint(*t, w.uses[0] == t, w.uses[1] == t)
	}
	return key
}

// Wrong implements explore.World.
func (w *dialWorld) Wrong() string { return w.wrong }

// step is state.after, which has to allow the event.
func (w *dialWorld) step(t *try, i int, e event) bool {
	if w.fault == stuck && e == refused {
		return true
	}
	next, ok := t.state[i].after(e, false)
	if t.state[i] = next; !ok && w.wrong == "" {
		w.wrong = fmt.Sprintf("event %d at end %d of a link that is %v", e, i, t.state)
	}
	return true
}

// made returns the link that a process makes for dials, or nil.
func (w *dialWorld) made(i int) *try {
	for _, t := range w.all {
		if t.from == i && (t.state[i] == asking || t.state[i] == making) {
			return t
		}
	}
	return nil
}

// dial is what a dial does. It uses a link, waits for one, or begins to make one.
func (w *dialWorld) dial(i int) bool {
	if w.dials--; w.dials < 0 || w.waits[i] {
		return false
	}
	if t := w.uses[i]; t != nil && !t.up() && w.fault != stale {
		w.step(t, i, ended)
		w.uses[i] = nil
	} else if t != nil {
		return true
	}
	w.waits[i] = true
	if w.made(i) == nil && (w.fault != whole || w.made(1-i) == nil) {
		t := &try{from: i}
		w.all = append(w.all, t)
		w.step(t, i, ask)
	}
	return true
}

func (w *dialWorld) answer(t *try) bool {
	if t.answered || t.cut {
		return false
	}
	t.answered = true
	return w.step(t, 1-t.from, asked)
}

func (w *dialWorld) hear(t *try) bool {
	switch {
	case t.state[t.from] != asking || !t.answered && !t.cut:
		return false
	case t.cut:
		w.waits[t.from] = false
		return w.step(t, t.from, refused)
	}
	return w.step(t, t.from, agreed)
}

func (w *dialWorld) bringUp(t *try) bool {
	if t.cut || t.state != [2]state{making, making} {
		return false
	}
	for i := range 2 {
		w.step(t, i, made)
	}
	w.waits[t.from], w.uses[t.from] = false, t
	if o := w.uses[1-t.from]; o == nil || !o.up() {
		w.uses[1-t.from] = t
	}
	return true
}

func (w *dialWorld) giveUp(t *try, i int) bool {
	if !t.cut || t.state[i] != making {
		return false
	}
	w.waits[i] = w.waits[i] && t.from != i
	return w.step(t, i, failed)
}

func (w *dialWorld) cut(t *try) bool {
	w.left--
	ok := w.left >= 0 && !t.cut
	t.cut = true
	return ok
}

// Steps implements explore.World.
func (w *dialWorld) Steps() (all []explore.Step[*dialWorld]) {
	add := func(name string, do func(*dialWorld) bool) {
		all = append(all, explore.Step[*dialWorld]{Name: name, Do: do})
	}
	for i := range 2 {
		add(fmt.Sprint("dial ", i), func(w *dialWorld) bool { return w.dial(i) })
	}
	for n := range w.all {
		add(fmt.Sprint("answer ", n), func(w *dialWorld) bool { return w.answer(w.all[n]) })
		add(fmt.Sprint("hear ", n), func(w *dialWorld) bool { return w.hear(w.all[n]) })
		add(fmt.Sprint("up ", n), func(w *dialWorld) bool { return w.bringUp(w.all[n]) })
		add(fmt.Sprint("cut ", n), func(w *dialWorld) bool { return w.cut(w.all[n]) })
		for i := range 2 {
			add(fmt.Sprint("give up ", n, i), func(w *dialWorld) bool { return w.giveUp(w.all[n], i) })
		}
	}
	return all
}

// Settle implements explore.World: nothing is cut any more, and both processes dial, once more if they have failed.
func (w *dialWorld) Settle() {
	for range 4 {
		w.dials = 2
		w.dial(0)
		w.dial(1)
		for _, t := range slices.Clone(w.all) {
			w.answer(t)
			w.hear(t)
			w.bringUp(t)
			w.giveUp(t, 0)
			w.giveUp(t, 1)
		}
	}
	for i, t := range w.uses {
		if w.wrong == "" && (t == nil || !t.up() || w.waits[i]) {
			w.wrong = fmt.Sprintf("dials of process %d use %v, and one waits: %t", i, t, w.waits[i])
		}
	}
}

// However two processes dial each other, and links are cut, dials come to an end, and later ones use a link that is up.
func TestSmallCasesOfDials(t *testing.T) {
	explore.Once(t)
	small := func(fl fault) (string, int) {
		return explore.Small(&dialWorld{fault: fl, left: 2, dials: 4}, moreThanStates)
	}
	wrong, states := small(noFault)
	require.Empty(t, wrong)
	t.Log(states, "states")
	for _, fl := range []fault{stuck, stale, whole} {
		wrong, _ := small(fl)
		require.NotEmpty(t, wrong, fl)
	}
}
