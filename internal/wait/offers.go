package wait

import (
	"runtime"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/virtual"
)

// Times of waits that offer their processor.
const (
	// The process that is to store the word may need this very processor, even where there
	// are enough. The scheduler tends to put a process that this one wakes on the same
	// processor, and does not move processes that take turns. So a wait offers its processor
	// to others after each offerEach polls, which take longer than a neighbour's answer:
	// BenchmarkOpenSHMEM's barrier takes three times as long with 16.
	// Where processes have to take turns anyway, it does so after each poll from
	// crowdedFrom on. Where goroutines of this process are to store the word, it lets
	// these run after each poll.
	offerEach   = 64
	crowdedFrom = 8
	// giveWay is the time after which a wait that is counted lets other goroutines run. Where processes
	// have to take turns, it does so after crowdedGiveWay if there seems to be an idle processor. That is
	// longer than most such waits, since yielding wakes an idle thread, which then takes turns with them.
	giveWay        = 20 * time.Microsecond
	crowdedGiveWay = 500 * time.Microsecond
	// While offers are slow, a wait ends after slowPolls polls.
	slowPolls = 64
	// mostOffer is what an offer of a wait for frames counts for at most in the time of the wait.
	mostOffer = 10 * time.Microsecond
)

// patience says what follows from slow offers. A slow offer means that another process computes.
// Then waits sleep after slowPolls polls, for as long as the offer took. After each further slow
// offer they do so for twice as long. The reason: only a sleeper gets the processor as soon as it
// has something to do.
type patience struct {
	slow   time.Duration // an offer that takes so long is slow
	most   int64         // times the last offer is the longest that waits sleep
	fast   int64         // offers in a row that are not slow make the next slow one the first
	counts time.Duration // of one offer, at most, in the time of a wait; others have used the rest
}

var (
	// The processes of a job take turns at processors, so that some of their offers take long.
	// Each of their sleeps costs a barrier on all processors, and a wake-up.
	patient = patience{slow: 2 * time.Millisecond, most: 32, fast: 1, counts: 2 * time.Millisecond}
	// What a forwarder waits for comes by a doorbell as well.
	impatient = patience{slow: time.Millisecond, most: 128, fast: 64, counts: mostOffer}
)

// pace is after how many polls of a wait its first offer comes, and after how many more the next.
type pace struct{ first, each int }

// Offers polls for waits that other processes end by a plain store, at any time. Such a
// process may have to take turns with this one at a processor, so while a wait polls, it
// offers its own. What these offers take shows whether processors are scarce. All waits for
// the same processes share an Offers, from any goroutines:
//
//	polls := offers.Begin(budget, 0)
//	defer polls.End()
//	for !look() {
//		if !polls.Due() {
//			ntb.Pause()
//		} else if !polls.Offer() {
//			return false // the caller parks
//		}
//	}
//	return true
//
// A wait is often over after some tens of nanoseconds, so its first polls cost nothing more,
// and how it ends is not remembered. From its second offer on it counts in the limit of all
// spins of the process, but not against Spinners: the connection that one waits for may be what
// the wait depends on. One that finds the limit reached, or exceeded by a Spinner, polls by turns:
// it lets other goroutines run after each offer, and so keeps its processor from none that could
// use it.
type Offers struct {
	// Constant once the first wait has begun.
	yield    func()          // lets another thread have this processor
	local    bool            // or another goroutine of this process
	stop     <-chan struct{} // closed when there is no reason to wait any more
	pace     pace            // of offers
	patience patience
	idleFor  time.Duration // in place of giveWay, if longer, while a processor seems to be idle
	epoch    time.Time     // when this was made

	until atomic.Int64 // no offers before this time, in nanoseconds since epoch
	times atomic.Int64 // length of that time, as a multiple of the last offer
	since atomic.Int64 // offers since then
}

// NewOffers returns an Offers whose waits offer their processor by yield, and end when stop
// is closed.
func NewOffers(yield func(), stop <-chan struct{}) *Offers {
	return &Offers{yield: yield, stop: stop, pace: pace{offerEach, offerEach}, patience: patient, epoch: time.Now()}
}

// chain and local are the Offers of all waits of this process for frames, which pass through a chain
// of processes, or of goroutines of this one. Each of those waits until the one before has worked,
// perhaps on the same processor.
var chain, local = newChain(), newLocal()

// Frames returns the Offers of waits for frames. within says that goroutines of this process store
// them.
func Frames(within bool) *Offers {
	if within {
		return local
	}
	return chain
}

func newChain() *Offers {
	o := NewOffers(Yield, nil)
	o.patience = impatient
	o.SetCrowded()
	return o
}

func newLocal() *Offers {
	o := NewOffers(runtime.Gosched, nil)
	o.patience, o.local, o.pace = impatient, true, pace{1, 1}
	return o
}

// SetCrowded says that processes take turns at this one's processors. It is called before
// the first wait.
func (o *Offers) SetCrowded() { o.pace, o.idleFor = pace{crowdedFrom, 1}, crowdedGiveWay }

// slow reports whether an offer would take long at the time now.
func (o *Offers) slow(now time.Time) bool {
	until := o.until.Load()
	return until != 0 && int64(now.Sub(o.epoch)) < until
}

// offer offers this processor at the time now, and returns the time after that.
func (o *Offers) offer(now time.Time) time.Time {
	if virtual.Poll != nil {
		virtual.Poll()
	} else {
		o.yield()
	}
	after := time.Now()
	took, times := after.Sub(now), o.times.Load()
	if took >= o.patience.slow {
		times = min(max(1, 2*times), o.patience.most)
		o.times.Store(times)
		o.since.Store(0)
		o.until.Store(int64(after.Sub(o.epoch)) + times*int64(took))
	} else if times != 0 && o.since.Add(1) >= o.patience.fast {
		o.times.Store(0)
	}
	return after
}

// given returns how much of an offer that took so long does not count in the time of the wait.
func (o *Offers) given(took time.Duration) time.Duration { return max(0, took-o.patience.counts) }

// stopped reports whether there is no reason to wait any more.
func (o *Offers) stopped() bool {
	select {
	case <-o.stop:
		return true
	default:
		return false
	}
}

// Polls are the polls of one wait. They belong to one goroutine.
type Polls struct {
	offers *Offers       // constant
	budget time.Duration // constant

	polls   int       // so far
	offerAt int       // the next of them that an offer follows
	begin   time.Time // when the first offer was due, later by what does not count; zero before that
	gave    time.Time // when other goroutines last had a chance to run
	gives   fruitless // chances of others to run
	place   place
	leaves  bool           // see Leave
	made    *atomic.Uint64 // counts the offers; may be nil
}

// place is whether a wait counts in the limit of all spins.
type place uint8

const (
	early   place = iota // not yet
	counted              // until its end
	beyond               // there was no room
	refused              // there was no room, and so the wait is over
)

// Begin begins a wait that polls for budget. In a wait for frames each offer counts for 10 µs of it at
// most. The caller has made some polls already.
func (o *Offers) Begin(budget time.Duration, polls int) Polls {
	return Polls{offers: o, budget: budget, polls: polls, offerAt: o.pace.first}
}

// Leave has the wait end where the limit of all spins is reached, rather than poll by turns. The
// caller ends it as soon as it sees that another goroutine polls for the same.
func (p *Polls) Leave() { p.leaves = true }

// Refused reports whether a wait of which [Polls.Leave] was called has found no room in the limit.
func (p *Polls) Refused() bool { return p.place == refused }

// CountIn has each offer of this wait counted in n.
func (p *Polls) CountIn(n *atomic.Uint64) { p.made = n }

// GaveAt says that other goroutines last had a chance to run at t, rather than at the first offer. t
// is what Gave of the last wait has returned, or zero if the caller has slept since.
func (p *Polls) GaveAt(t time.Time) { p.gave = t }

// Gave returns when other goroutines last had a chance to run. Before the first offer that is what
// GaveAt has said, or zero.
func (p *Polls) Gave() time.Time { return p.gave }

// Again begins the time anew, after a poll that found something.
func (p *Polls) Again() {
	p.polls, p.offerAt = 0, p.offers.pace.first
	if !p.begin.IsZero() {
		p.begin = time.Now()
	}
}

// Due counts a poll that found nothing. It reports whether to call Offer before the next one.
func (p *Polls) Due() bool {
	p.polls++
	return p.polls >= p.offerAt
}

// Offer offers the processor. It reports whether the caller should poll again. If not, the
// caller should end the Polls and sleep.
func (p *Polls) Offer() bool {
	o := p.offers
	now := time.Now()
	switch {
	case p.begin.IsZero():
		p.begin = now
		if p.gave.IsZero() {
			p.gave = now
		}
	case p.place == early && enter():
		p.place = counted
		giving.Add(1)
	case p.place == early && p.leaves:
		p.place = refused
		return false
	case p.place == early:
		p.place = beyond
		turning.Add(1)
	}
	p.offerAt = p.polls + o.pace.each
	if o.slow(now) {
		return p.polls < slowPolls
	}
	before := now
	now = o.offer(now)
	p.begin = p.begin.Add(o.given(now.Sub(before)))
	if p.made != nil {
		p.made.Add(1)
	}
	if now.Sub(p.begin) > p.budget || o.stopped() {
		return false
	}
	switch {
	case o.local:
		p.gave = now
	case p.turns() || p.givesWay(now.Sub(p.gave)):
		p.gave = p.gives.yield(now, fruitlessYield)
	}
	return true
}

// givesWay reports whether the wait lets other goroutines run, which they have not done for so long.
func (p *Polls) givesWay(since time.Duration) bool {
	return since > giveWay<<p.gives && (since >= p.offers.idleFor || !idle(0))
}

// turns reports whether the wait polls by turns.
func (p *Polls) turns() bool {
	return p.place == beyond || p.place == counted && !p.leaves && spinning.Load() > limit(false)
}

// End ends the wait.
func (p *Polls) End() {
	switch p.place {
	case counted:
		giving.Add(-1)
		leave()
	case beyond:
		turning.Add(-1)
	}
}
