package wait

import (
	"runtime"
	"time"

	"github.com/ntbnet/ntbnet/internal/virtual"
	"github.com/ntbnet/ntbnet/ntb"
)

// Source is what a spin waits for.
type Source interface {
	// Ready reports whether what the spin waits for has come. It loads a few words of local
	// memory.
	Ready() bool
	// Stopped reports whether there is a reason not to wait. It is called after each
	// pollsACheck calls of Ready.
	Stopped() bool
	// Yielded is called each time that other goroutines have had a chance to run.
	Yielded()
}

// Outcome is how a spin ended.
type Outcome uint8

const (
	None    Outcome = iota // it did not begin
	Hit                    // the source is ready
	Stopped                // the source is stopped
	Missed                 // the time is over
	Crowded                // another wait has its turn; TakeTurn comes next
)

func (o Outcome) String() string {
	return [...]string{"none", "hit", "stopped", "missed", "crowded"}[o]
}

// pollsACheck is how many calls of Ready come between two looks at the clock.
const pollsACheck = 16

// Spinner decides whether the waits at one place spin, and for how long. One goroutine uses
// it at a time.
type Spinner struct {
	budget    time.Duration // constant
	thrift    *Thrift       // constant; may be nil
	offers    *Offers       // constant; nil: no processor is offered
	longer    time.Duration // constant: budget of spins that offer theirs
	elsewhere bool          // constant: another machine ends the waits
	member    *member       // constant; nil: in no crowd

	guess  guess
	early  fruitless // yields during a spin
	slices fruitless // yields at the end of a time slice
	last   time.Time // when other goroutines last had a chance to run here
	work   int       // work done since then, see Worked

	counts Counts
}

// Counts are the counters of a Spinner.
type Counts struct {
	Spins  uint64 // spins that began
	Hits   uint64 // spins whose source was ready
	Spared uint64 // spins that the Thrift prevented
	Misses uint64 // waits that ended without what they were for
}

// NewSpinner returns a Spinner whose spins last budget. If that is 0, none begins. t is
// shared by all that waits in a fabric. If it is nil, no account is kept of the spins.
func NewSpinner(budget time.Duration, t *Thrift) Spinner {
	return Spinner{budget: budget, thrift: t, last: time.Now()}
}

// Offer has spins offer their processor to other processes by o, and last times as long, but for
// those that begin while an offer would take long. In waits for frames each offer counts for 10 µs at
// most. Offer is called before the first of them.
func (s *Spinner) Offer(o *Offers, times int) {
	s.offers, s.longer = o, time.Duration(times)*s.budget
}

// Elsewhere says that another machine's processors end the waits, and so spins need not leave them one
// of this machine's. It is called before the first wait.
func (s *Spinner) Elsewhere() {
	s.elsewhere, s.guess.elsewhere = true, true
}

// Join has the waits take turns with others of c. A token in wake, which has capacity 1, makes
// a wait look again. Other goroutines call Ready of the Sources. Join is called before the first
// wait.
func (s *Spinner) Join(c *Crowd, wake chan struct{}) { s.member = &member{crowd: c, wake: wake} }

// Accepted says that this end of the connection has accepted it, which lets its turns last until
// the other end follows. It is called before the first wait.
func (s *Spinner) Accepted() {
	if s.member != nil {
		s.member.accepted = true
	}
}

// Once spins for a wait at a place that keeps no Spinner. It yields as late as a Spinner that
// has found no other goroutine to run.
func (s *Spinner) Once(src Source) Outcome {
	s.early = maxFruitless
	return s.Spin(src)
}

// Counts returns the counters.
func (s *Spinner) Counts() Counts { return s.counts }

// Spin polls until src is ready or stopped, or the time is used up, or another wait has its turn.
func (s *Spinner) Spin(src Source) Outcome {
	if s.budget <= 0 || !s.guess.spins() {
		return None
	}
	if !enterBesides(s.elsewhere) {
		return s.member.refuse()
	}
	defer leave()
	var p spin
	if !p.begin(s) {
		s.counts.Spared++
		return None
	}
	if s.member.over(p.start, s.counts.Hits) {
		return Crowded
	}
	s.counts.Spins++
	offers := p.offers != nil
	for i := 1; ; i++ {
		if src.Ready() {
			p.hit(i)
			return Hit
		}
		slow, longer := false, false
		if !offers {
			ntb.Pause()
		} else if i > p.offers.pace.first {
			slow, longer = p.offer()
		}
		if i+1 == p.yieldAt {
			p.yield(i + 1)
			src.Yielded()
		}
		if i%pollsACheck != 0 && !slow && !longer {
			continue
		}
		waited, stopped := p.waited(), src.Stopped()
		switch {
		case stopped:
			p.miss()
			return Stopped
		case s.member.passes(waited, p.spent.looked, s.counts.Hits):
			p.spent.end(true)
			return Crowded
		case slow || waited > p.budget && waited > s.member.budget(p.budget):
			p.miss()
			s.member.missed()
			return Missed
		}
	}
}

// TakeTurn waits until src is ready or stopped, and it is this wait's turn, after Spin has returned
// Crowded. It returns None if the crowd closes.
func (s *Spinner) TakeTurn(src Source) Outcome {
	o := s.member.sleep(src)
	s.work = 0
	s.Slept()
	switch o {
	case Hit:
		s.counts.Spins++
		s.counts.Hits++
		s.guess.hit(false)
		s.thrift.saved(s.last)
	case Stopped:
		s.counts.Spins++
		s.Miss()
	default:
		s.member.refused = true
	}
	return o
}

// Rang is called before a wait of a process that has just rung. The system mostly puts the thread that was woken on the
// processor of the one that rang, where a spin would keep it waiting. So Rang lets that thread run, after goroutines of this
// process. It does nothing where another machine was rung, nor while processors are scarce: then another process might have a
// turn.
func (s *Spinner) Rang() {
	if s.thrift == nil || s.elsewhere || virtual.Poll != nil {
		return
	}
	p := spending{thrift: s.thrift, looked: time.Now()}
	if p.may(); p.scarce {
		return
	}
	begin := p.looked
	runtime.Gosched()
	p.yielded(time.Now())
	if p.looked.Sub(begin) < wakingYield { // no goroutine was ready
		Yield()
		p.look(time.Now())
	}
	s.last, s.work = p.looked, 0
}

// Parks is called before a wait parks that Spin has not ended, and Unparks when it goes on.
func (s *Spinner) Parks() {
	if s.member != nil && s.member.refused {
		s.member.crowd.park(s.member)
	}
}

// Unparks ends Parks.
func (s *Spinner) Unparks() {
	if s.member != nil && s.member.refused {
		s.member.crowd.unpark(s.member)
		s.member.refused = false
	}
}

// spin is one spin of a Spinner.
type spin struct {
	s       *Spinner
	budget  time.Duration
	offers  *Offers   // nil: this one offers no processor
	start   time.Time // later by what does not count
	spent   spending
	first   int       // polls before the first yield, unless earlier ones were fruitless
	yieldAt int       // the number of the next poll that others run before
	offered time.Time // when the last offer was over; zero before the first
}

// begin begins a spin. It reports false if the Thrift prevents it.
func (p *spin) begin(s *Spinner) bool {
	start := time.Now()
	if start.Sub(s.last) > slice<<s.slices {
		start = s.slices.endSlice(start, idle(0))
		s.last, s.work = start, 0
	}
	*p = spin{
		s: s, budget: s.longer, offers: s.offers, start: start, first: firstYield,
		spent: spending{thrift: s.thrift, looked: start},
	}
	switch {
	case p.offers == nil || p.offers.slow(start):
		p.budget, p.offers = s.budget, nil
	case !p.offers.local:
		p.first = p.offers.pace.first // goroutines of this process come before other processes
	}
	p.yieldAt = p.first << s.early
	p.budget = s.guess.budget(p.budget)
	return p.spent.may()
}

// yield lets other goroutines run before poll i.
func (p *spin) yield(i int) {
	now := time.Now()
	p.spent.look(now)
	if i == p.first<<p.s.early {
		p.spent.yielded(p.s.early.yield(now, fruitlessYield)) // later yields of this spin are not counted
	} else {
		runtime.Gosched()
		p.spent.yielded(time.Now())
	}
	if !p.offered.IsZero() {
		p.offered = p.spent.looked
	}
	p.yieldAt = i + 2*p.first<<p.s.early
}

// hit ends a spin whose source was ready at poll i.
func (p *spin) hit(i int) {
	p.s.counts.Hits++
	late := false
	if i > 2*firstYield { // before that, the clock costs more than was spent
		p.spent.look(time.Now())
		late = p.spent.looked.Sub(p.start) > p.s.member.budget(p.s.budget)
	}
	p.s.guess.hit(late)
	if p.spent.scarce {
		p.spent.end(true)
	}
}

// offer offers the processor to other processes. It reports whether the next offers would take
// long, and whether this one was longer than it counts.
func (p *spin) offer() (slow, longer bool) {
	if p.offered.IsZero() {
		p.offered = time.Now()
	}
	before := p.offered // so what the polls since then have done is part of this offer
	p.offered = p.offers.offer(before)
	more := p.offers.given(p.offered.Sub(before))
	p.start = p.start.Add(more)
	p.spent.yielded(p.offered)
	return p.offers.slow(p.offered), more > 0
}

// waited returns how long the spin has lasted.
func (p *spin) waited() time.Duration {
	now := time.Now()
	p.spent.look(now)
	return now.Sub(p.start)
}

// miss ends a spin whose source was not ready.
func (p *spin) miss() {
	p.spent.end(false)
	p.s.Miss()
}

// Miss counts a wait that had parked, and ended without what it was for. A spin that ends
// so is counted by Spin.
func (s *Spinner) Miss() {
	s.counts.Misses++
	s.guess.miss()
}

// Slept is called after a sleep, in which other goroutines had a chance to run.
func (s *Spinner) Slept() {
	s.last = time.Now()
	s.member.begin(s.last, s.counts.Hits)
}

// Worked counts the work of a call that moved n bytes, and yields to other goroutines from
// time to time.
func (s *Spinner) Worked(n int) {
	if s.work += n + callCost; s.work > sliceWork<<s.slices {
		s.work = 0
		s.slices.endSlice(time.Now(), idle(1))
	}
}
