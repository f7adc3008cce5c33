package ring

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/explore"
	"github.com/stretchr/testify/require"
)

// waiting reports whether s waits.
func (t *turns[S]) waiting(s S) bool { return index(t.own, s) >= 0 || index(t.forwarded, s) >= 0 }

// laneFault is a mistake of a laneWorld in place of turns.
type laneFault string

const (
	soundLane      laneFault = ""
	oneSlot        laneFault = "own frames need one slot"
	ownFirst       laneFault = "own traffic is never ahead"
	forwardedFirst laneFault = "own traffic is always ahead"
	endlessHold    laneFault = "a hold has no end"
	forgetsShare   laneFault = "a share begins anew with each frame"
	framesNotBytes laneFault = "frames are counted, not bytes"
	forgetsComers  laneFault = "a share ends with each frame of one that comes again"
	losesTurn      laneFault = "a source with more frames leaves"
)

var laneFaults = []laneFault{oneSlot, ownFirst, forwardedFirst, endlessHold, forgetsShare, framesNotBytes, forgetsComers, losesTurn}

const worldQuantum = 64

// laneSource is a source of a laneWorld. All its frames have one size.
type laneSource struct {
	own    bool
	comes  bool // it leaves after each frame, and comes again for the next, as a lane does
	size   int
	frames int // that it has left
	sent   int // bytes
}

// laneWorld is a lane's sources and its neighbour, for a test of turns.
type laneWorld struct {
	t       turns[int] // of numbers of sources
	fault   laneFault
	slots   int
	free    int
	sources []laneSource
	lead    int // by how many bytes own traffic is ahead
	now     time.Time
	trace   explore.Trace
	wrong   string
}

func newLaneWorld(fl laneFault, slots int, sources ...laneSource) *laneWorld {
	w := &laneWorld{
		t: turns[int]{needs: 2, quantum: worldQuantum}, fault: fl, slots: slots, free: slots,
		sources: sources, now: time.Unix(0, 0),
	}
	if fl == oneSlot {
		w.t.needs = 1
	}
	for i, s := range sources {
		w.t.join(i, s.own)
	}
	return w
}

// plant makes the mistakes that are made before a turn.
func (w *laneWorld) plant() {
	switch w.fault {
	case ownFirst:
		w.t.lead = min(w.t.lead, 0)
	case forwardedFirst:
		w.t.lead = max(w.t.lead, 1)
	case endlessHold:
		w.t.held = w.now
	case forgetsShare:
		for i := range w.t.own {
			w.t.own[i].left = worldQuantum
		}
	}
}

// step asks whose turn it is, and takes it. It returns what it was.
func (w *laneWorld) step() turn {
	w.plant()
	what, i := w.t.next(w.free, expectNone, func() time.Time { return w.now })
	w.trace.Note("turn", what, i)
	if what != turnOwn && what != turnForward {
		return what
	}
	if w.judge(what, i); w.wrong != "" {
		return what
	}
	s := &w.sources[i]
	w.free--
	s.frames--
	s.sent += s.size
	if most := leadFrames * worldQuantum; s.own {
		w.lead = min(w.lead+s.size, most)
	} else {
		w.lead = max(w.lead-s.size, -most)
	}
	n := s.size
	if w.fault == framesNotBytes {
		n = 1
	}
	w.t.went(s.own, n, s.frames > 0 && !s.comes && w.fault != losesTurn)
	if s.comes && s.frames > 0 {
		if w.fault == forgetsComers {
			w.t.gone = [2]gone[int]{}
		}
		w.t.join(i, s.own)
	}
	w.share(i)
	return what
}

// judge judges what goes.
func (w *laneWorld) judge(what turn, i int) {
	s := w.sources[i]
	switch {
	case s.own != (what == turnOwn) || s.frames == 0:
		w.wrong = fmt.Sprintf("turn %d for source %d", what, i)
	case w.free < 1 || s.own && w.free < 2:
		w.wrong = fmt.Sprintf("turn %d with %d free slots", what, w.free)
	case s.own && w.lead > 0 && w.waits(false):
		w.wrong = "own traffic goes although it is ahead"
	case !s.own && w.lead <= 0 && w.waits(true) && w.free >= 2:
		w.wrong = "forwarded traffic goes although it is ahead"
	}
}

// share judges what source i has sent beside the others of its kind, which had frames all the
// time. It may be ahead by what is sent in a round and by one frame.
func (w *laneWorld) share(i int) {
	for k, other := range w.sources {
		if a := w.sources[i]; a.own == other.own && other.frames > 0 && a.sent-other.sent > 2*worldQuantum {
			w.wrong = fmt.Sprintf("source %d has sent %d bytes, source %d %d", i, a.sent, k, other.sent)
		}
	}
}

// waits reports whether a source of a kind has frames.
func (w *laneWorld) waits(own bool) bool {
	return slices.ContainsFunc(w.sources, func(s laneSource) bool { return s.frames > 0 && s.own == own })
}

// Settle has the neighbour take all as long as there is something. Everything must go.
func (w *laneWorld) Settle() {
	for idle := 0; w.wrong == "" && (w.waits(true) || w.waits(false)); {
		what := w.step()
		switch what {
		case turnOwn, turnForward:
			idle = 0
			continue
		case turnNone, turnYield:
			w.wrong = fmt.Sprintf("turn %d although sources wait", what)
		case turnRoom:
			w.free = w.slots
		}
		if idle++; idle > 100 && w.wrong == "" {
			w.wrong = fmt.Sprintf("nothing goes on, %d slots are free", w.free)
		}
		w.now = w.now.Add(holdFor / 2)
	}
}

func (w *laneWorld) Wrong() string { return w.wrong }

func (w *laneWorld) Clone() *laneWorld {
	c := *w
	c.t.forwarded, c.t.own, c.sources = slices.Clone(w.t.forwarded), slices.Clone(w.t.own), slices.Clone(w.sources)
	return &c
}

func (w *laneWorld) Key() string {
	held := time.Duration(-1)
	if !w.t.held.IsZero() {
		held = min(w.now.Sub(w.t.held), holdFor)
	}
	return fmt.Sprint(w.t.forwarded, w.t.own, w.t.gone, w.t.lead, w.t.backoff, w.t.skip, held, w.free, w.sources)
}

func (w *laneWorld) Steps() []explore.Step[*laneWorld] {
	return []explore.Step[*laneWorld]{
		{Name: "turn", Do: func(w *laneWorld) bool { w.step(); return true }},
		{Name: "credit", Do: func(w *laneWorld) bool { w.free++; return w.free <= w.slots }},
		{Name: "time", Do: func(w *laneWorld) bool { w.now = w.now.Add(holdFor / 2); return !w.t.held.IsZero() }},
	}
}

// smallLanes explores small lanes: one that forwards for one source, with two sources of its
// own, and one that forwards for two.
func smallLanes(fl laneFault) (wrong string, states int) {
	for slots := 2; slots <= 3; slots++ {
		for _, sources := range [][]laneSource{
			{{size: 64, frames: 4}, {own: true, size: 64, frames: 4}, {own: true, size: 8, frames: 10}},
			{{size: 64, frames: 3}, {size: 8, frames: 6}, {own: true, size: 32, frames: 4}},
			{{size: 64, frames: 1}, {own: true, size: 8, frames: 40}, {own: true, comes: true, size: 8, frames: 40}},
			{{comes: true, size: 64, frames: 4}, {comes: true, size: 8, frames: 30}, {own: true, size: 32, frames: 2}},
		} {
			wrong, n := explore.Small(newLaneWorld(fl, slots, sources...), 500_000)
			if states += n; wrong != "" {
				return wrong, states
			}
		}
	}
	return "", states
}

// busyLane is a lane whose sources have frames all the time. The neighbour takes some now and
// then.
func busyLane(fl laneFault, seed uint64) (wrong string, trace explore.Trace) {
	rng := rand.New(rand.NewPCG(seed, 2))
	var sources []laneSource
	for range 1 + rng.IntN(5) {
		sources = append(sources, laneSource{own: rng.IntN(2) == 0, comes: rng.IntN(2) == 0, size: 1 + rng.IntN(worldQuantum), frames: 1 << 20})
	}
	w := newLaneWorld(fl, 2+rng.IntN(7), sources...)
	w.trace = explore.Begin(seed)
	for range 400 {
		switch what := w.step(); {
		case w.wrong != "":
			return w.wrong, w.trace
		case what == turnRoom, what == turnHold && rng.IntN(2) == 0:
			w.free += 1 + rng.IntN(w.slots-w.free)
		}
		w.now = w.now.Add(time.Duration(rng.IntN(int(holdFor))))
	}
	for i := range w.sources {
		w.sources[i].frames = 3
	}
	w.Settle()
	return w.wrong, w.trace
}

// Whatever room there is when, each kind of traffic and each source gets its share, and
// nothing waits for ever.
func TestSeedsOfALane(t *testing.T) {
	explore.Seeds(t, 1000, func(seed uint64) (string, explore.Trace) { return busyLane(soundLane, seed) })
}

func TestSmallLanes(t *testing.T) {
	explore.Once(t)
	wrong, states := smallLanes(soundLane)
	require.Empty(t, wrong)
	t.Logf("%d states", states)
	require.Greater(t, states, 1000)
}

func TestSeedsFindFaultsPlantedInALane(t *testing.T) {
	explore.Planted(t, laneFaults, busyLane, func(fl laneFault) string { wrong, _ := smallLanes(fl); return wrong })
}

// What pass does is what join, next and went do for a source that waits alone.
func TestPassIsATurn(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 7))
		a := turns[int]{needs: 2, quantum: worldQuantum}
		b := turns[int]{needs: 2, quantum: worldQuantum}
		now := time.Unix(1, 0)
		for range 100 {
			s, n, own := 1+rnd.IntN(3), 1+rnd.IntN(worldQuantum), rnd.IntN(4) == 0
			now = now.Add(time.Microsecond)
			for i, q := range []*turns[int]{&a, &b} {
				if !own && i == 1 {
					require.True(t, q.pass(s, n))
					continue
				}
				q.join(s, own)
				what, first := q.next(9, expectNone, func() time.Time { return now })
				require.Equal(t, s, first)
				require.Equal(t, own, what == turnOwn)
				q.went(own, n, false)
			}
			require.Equal(t, a.lead, b.lead)
			require.Equal(t, a.gone, b.gone)
		}
		b.join(9, true)
		require.False(t, b.pass(1, 1), "somebody waits")
	}
}
