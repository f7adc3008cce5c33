package bounce

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// spinners counts the goroutines that spin, so that they leave processors to those
// that work.
var spinners atomic.Int32

func maxSpinners() int32 {
	if runtime.NumCPU() == 1 {
		return 0
	}
	return int32(runtime.GOMAXPROCS(0)+1) / 2
}

// source is what a spin waits for.
type source interface {
	// ready reports whether it has come. It loads a few words of local memory.
	ready() bool
	// stopped reports whether there is a reason not to wait. It is called after some polls.
	stopped() bool
	// yielded is called each time that other goroutines have had a chance to run.
	yielded()
}

// spun is how a spin ended.
type spun uint8

const (
	spinNone    spun = iota // it did not begin
	spinHit                 // the source is ready
	spinStopped             // the source is stopped
	spinMissed              // the time is over
)

// spinner decides whether the waits of one goroutine at a time spin, and for how long.
type spinner struct {
	thrift *Thrift // immutable

	guesses [2]guess
	guess   *guess    // the guess for the call under way
	early   vain      // yields during a spin
	turns   vain      // yields at the end of a turn
	last    time.Time // when other goroutines last had a chance to run here
	work    int       // work done since then, see worked

	spins, hits, spared uint64 // spins, those that ended by data, and those that Thrift prevented
}

func (s *spinner) init(t *Thrift) { s.thrift, s.guess = t, &s.guesses[0] }

// spin polls until src is ready or stopped, or the time is used up.
func (s *spinner) spin(src source, most time.Duration) spun {
	if !s.guess.spins() {
		return spinNone
	}
	if spinners.Add(1) > maxSpinners() {
		spinners.Add(-1)
		return spinNone
	}
	defer spinners.Add(-1)
	start := time.Now()
	if start.Sub(s.last) > turn<<s.turns {
		start = s.turns.yield(start)
		s.last, s.work = start, 0
	}
	spent := spending{thrift: s.thrift, looked: start}
	if !spent.may() {
		s.spared++
		return spinNone
	}
	s.spins++
	budget := s.guess.budget(most)
	yieldAt := firstYield << s.early
	for i := 1; ; i++ {
		if i == yieldAt {
			now := time.Now()
			spent.look(now)
			if i == firstYield<<s.early {
				spent.yielded(s.early.yield(now)) // later yields of this spin say nothing
			} else {
				runtime.Gosched()
				spent.yielded(time.Now())
			}
			yieldAt = i + 2*firstYield<<s.early
			src.yielded()
		}
		if src.ready() {
			s.hits++
			s.guess.hit()
			if i > 2*firstYield { // before that, the clock costs more than was spent
				spent.look(time.Now())
			}
			if spent.scarce {
				spent.end(true)
			}
			return spinHit
		}
		if i&15 != 0 {
			ntb.Pause()
			continue
		}
		stopped := src.stopped()
		now := time.Now()
		spent.look(now)
		if stopped || now.Sub(start) > budget {
			spent.end(false)
			s.guess.miss()
			if stopped {
				return spinStopped
			}
			return spinMissed
		}
	}
}

// slept is called after a sleep, in which other goroutines had a chance to run.
func (s *spinner) slept() { s.last = time.Now() }

// worked counts the work of a call, and yields to other goroutines from time to
// time.
func (s *spinner) worked(n int) {
	if s.work += n + callCost; s.work > turnWork<<s.turns {
		s.work = 0
		s.turns.yield(time.Now())
	}
}

// guessFor chooses the guess for a Read of n bytes. Reads of a single byte have a
// guess of their own: net/http's servers keep one waiting while a handler runs, and
// it ends without data.
func (s *spinner) guessFor(n int) {
	if n == 1 {
		s.guess = &s.guesses[1]
	} else {
		s.guess = &s.guesses[0]
	}
}

// SpinUntil polls done, and what the peer announces, for as long as a wait may
// spin, if at all. It reports whether done returned true.
func (p *Pool) SpinUntil(done func() bool) bool {
	if p.opts.Spin <= 0 {
		return done()
	}
	start := time.Now()
	spent := spending{thrift: p.opts.Thrift, looked: start}
	if !spent.may() {
		return done()
	}
	defer spinners.Add(-1)
	if spinners.Add(1) > maxSpinners() {
		return done()
	}
	for i := 1; !done(); i++ {
		p.peer.Poll()
		ntb.Pause()
		if i&15 != 0 {
			continue
		}
		now := time.Now()
		spent.look(now)
		if now.Sub(start) > p.opts.Spin {
			spent.end(false)
			return false
		}
	}
	spent.look(time.Now())
	spent.end(true)
	return true
}
