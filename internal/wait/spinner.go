package wait

import (
	"math"
	"runtime"
	"time"

	"github.com/ntbnet/ntbnet/internal/virtual"
	"github.com/ntbnet/ntbnet/ntb"
)

// Each constant names the benchmark rows that get worse without it. To see them, change the constant in a copy of the tree:
//
//	benchmarks/run . COPY -bench ROW
const (
	// Usual is how long a wait polls, several times what parking and being woken take. One that depends on others being woken
	// polls ManyTimes as long: two sides that both sleep would else find each other asleep each time. Rows: Latency of 64 B and 64 KiB; Hops, ShmemRing.
	Usual     = 50 * time.Microsecond
	ManyTimes = 4
	// pollsACheck is how many polls come between two looks at the clock, about a microsecond. Then other goroutines run:
	// what the wait is for may depend on one that is ready to run on this very processor, and another
	// processor takes that over only after a pause of its own. Rows: Get of 8 clients, Shmem barrier of 2 PEs by requests.
	pollsACheck = 32
	// pollsInCrowd come between two yields to processes that take turns at this processor. Row: Hops.
	pollsInCrowd = 2
	// aWake is how long it takes until a thread runs that is woken. Rows: Many; Rates of 32 connections.
	aWake = 20 * time.Microsecond
	// few fruitless spins, or slow turns, say little. Spins that are fruitless more often in a row get up to 1<<few times as rare.
	// Rows: Shmem barrier of 2 PEs by requests, ShmemRing; processor time of Rates.
	few = 5
)

// Source is what a spin waits for.
type Source interface {
	// Ready reports whether what the spin waits for has come. It loads a few words of local memory.
	Ready() bool
	// Stopped reports whether there is a reason not to wait. It is called after each pollsACheck calls of Ready, and where others took long.
	Stopped() bool
}

// Outcome is how a spin ended.
type Outcome uint8

const (
	None    Outcome = iota // it did not begin
	Missed                 // the time is over
	Queued                 // another wait has its turn; TakeTurn comes next
	Hit                    // the source is ready
	Stopped                // the source is stopped
)

func (o Outcome) String() string { return [...]string{"none", "missed", "queued", "hit", "stopped"}[o] }

// Config says what the waits at one place are for.
type Config struct {
	// Budget is how long a spin lasts. If it is 0, none begins.
	Budget time.Duration
	// Remote says that another machine's processors end the waits. Then a spin after one that found nothing lasts until the peer
	// is awake: two sides that both sleep would else never find each other spinning.
	Remote bool
	// Yield lets those run that end the waits and may need this very processor: processes, or, if Within is set, goroutines of this
	// one. Nil if they have processors of their own. It is called at each look at the clock, or, if Crowded is set, every
	// other poll. It counts for aWake at most.
	Yield           func()
	Within, Crowded bool
	// Once says that a Spinner is made for one wait of SHMEM, which lets goroutines run only where more spin than have processors.
	Once bool
	// Thread says that threads of C wait. Each goroutine is bound to one, so to let another goroutine run takes two switches of
	// threads, and these spins do not.
	Thread bool
	// Always says that spins begin however many there are, and leave the others their places.
	Always bool
}

// ForFrames returns c for waits for frames, which pass through a chain of processes, or, if within is set, of goroutines of this one.
// Each of those waits until the one before has worked, perhaps on the same processor.
func (c Config) ForFrames(within bool) Config {
	c.Yield, c.Crowded, c.Within = Yield, true, within
	if within {
		c.Yield = runtime.Gosched
	}
	return c
}

// Spinner decides whether the waits at one place spin, and for how long. One goroutine uses it at a time.
type Spinner struct {
	Config // constant
	ticket *ticket

	misses int // Spins in a row that found nothing, at most 2*few.
	skips  int // The next waits park at once, so many of them.
	counts Counts
}

// Counts are the counters of a Spinner.
type Counts struct {
	Spins  uint64 // spins that began
	Hits   uint64 // spins whose source was ready
	Misses uint64 // calls of Miss, and spins that found nothing
	Spared uint64 // spins that did not begin because processors are scarce
	Yields uint64 // calls of Config.Yield
}

// NewSpinner returns a Spinner.
func NewSpinner(c Config) Spinner { return Spinner{Config: c} }

// Counts returns the counters.
func (s *Spinner) Counts() Counts { return s.counts }

// Spin polls until src is ready or stopped, or the time is used up, or another wait has its turn.
func (s *Spinner) Spin(src Source) Outcome {
	p := spin{s: s}
	if o := p.begin(); o != Hit {
		return o
	}
	defer p.end()
	for !src.Ready() {
		if !p.next() {
			continue
		}
		switch {
		case src.Stopped():
			s.Miss()
			return Stopped
		case s.ticket.waitsLong(p.looked - p.start):
			return Queued
		case p.over():
			s.Miss()
			s.ticket.missed()
			return Missed
		}
	}
	s.hit()
	return Hit
}

// Poll polls until look returns true, and reports that, or the time is used up. It is Spin for waits that a function
// ends. It does not allocate, since look does not escape.
func (s *Spinner) Poll(look func() bool) bool {
	p := spin{s: s}
	if p.begin() != Hit {
		return look()
	}
	defer p.end()
	for !look() {
		if p.next() && p.over() {
			s.Miss()
			return look()
		}
	}
	s.hit()
	return true
}

func (s *Spinner) hit() {
	s.counts.Hits++
	s.misses, s.skips = 0, 0
}

// Miss counts a wait that ended without what it was for. The next one parks at once, and more of them after many
// misses in a row.
func (s *Spinner) Miss() {
	s.counts.Misses++
	s.misses = min(s.misses+1, 2*few)
	s.skips = 2<<max(0, s.misses-few) - 1
}

// Relieved says that another goroutine polls in place of the last spin, which was stopped for that. So it was no miss.
func (s *Spinner) Relieved() { s.misses, s.skips = 0, 0 }

// Rang is called before a wait of a process that has just rung. The system mostly puts the thread that was woken on the
// processor of the one that rang, where a spin would keep it waiting. So Rang lets that thread run, after goroutines of this
// process. It does nothing where another machine was rung, nor while processors are scarce: then another process might have a
// turn.
func (s *Spinner) Rang() {
	now := clock()
	if s.Remote || s.Budget == 0 || virtual.Poll != nil || scarce(now) {
		return
	}
	if !s.Thread {
		runtime.Gosched()
	}
	if ran := clock(); ran-now < aWake {
		Yield()
		look(ran, clock())
	}
}

// spin is one spin of a Spinner.
type spin struct {
	s       *Spinner
	start   time.Duration // later by what does not count
	looked  time.Duration // when the clock was last read
	budget  time.Duration
	polls   int
	yieldAt int // the poll after which other goroutines run
	lost    bool
}

// begin returns Hit if the spin begins, and else how it ends.
func (p *spin) begin() Outcome {
	s := p.s
	if s.Budget <= 0 {
		return None
	}
	if s.skips > 0 {
		s.skips--
		return None
	}
	now := clock()
	if s.misses > 1 && scarce(now) {
		s.counts.Spared++
		return None
	}
	if !s.Always && !enter(now, s.Remote) {
		return s.ticket.refuse()
	}
	if s.Always {
		processors.always.Add(1)
		limit(now, false) // which reads GOMAXPROCS, for full
	}
	p.start, p.looked, p.budget, p.yieldAt = now, now, s.Budget, pollsACheck
	if s.Thread {
		p.yieldAt = math.MaxInt
	} else if s.Once {
		p.yieldAt = math.MaxInt - 1 // only where no processor is idle, on which a goroutine that is ready would run
	}
	if s.Remote && s.misses > 0 {
		p.budget = max(p.budget, lostFor)
	}
	if s.ticket.turnOver(now, s.counts.Hits) {
		p.end()
		return Queued
	}
	s.counts.Spins++
	return Hit
}

func (p *spin) end() {
	if p.s.Always {
		processors.always.Add(-1)
	} else {
		leave()
	}
}

// next is called after a poll that found nothing. It reports whether to check how long the spin has lasted.
func (p *spin) next() bool {
	p.polls++
	check := p.polls%pollsACheck == 0
	if s := p.s; s.Yield == nil || !check && !(s.Crowded && p.polls%pollsInCrowd == 0) {
		ntb.Pause()
	} else if p.yield() {
		return true
	}
	if check {
		p.look(true)
		if p.polls >= p.yieldAt || p.yieldAt < math.MaxInt && full() {
			p.goroutines()
		}
	}
	return check
}

// look reads the clock, after polls or a yield. A poll of SHMEM may take long by itself, as it may look at many words.
func (p *spin) look(polled bool) {
	now := clock()
	p.lost = !(polled && p.s.Once) && look(p.looked, now) || p.lost
	p.looked = now
}

// goroutines lets other goroutines run.
func (p *spin) goroutines() {
	runtime.Gosched()
	p.looked = clock()
	p.yieldAt = p.polls + 2*pollsACheck
}

// yield lets those run that end the wait. It reports whether that took long, or is left out as processors are scarce.
func (p *spin) yield() bool {
	p.look(true)
	if p.lost = p.lost || scarce(p.looked); p.lost {
		return true
	}
	p.s.counts.Yields++
	if virtual.Poll != nil {
		virtual.Poll()
		return false
	}
	before := p.looked
	p.s.Yield()
	if p.s.Within {
		p.looked = clock() // what other goroutines took was not lost
	} else {
		p.look(false)
	}
	more := max(0, p.looked-before-aWake)
	p.start += more
	return more > 0
}

// over reports whether the time is used up, or a spin that yields has lost its processor.
func (p *spin) over() bool {
	return p.looked-p.start > p.s.ticket.budget(p.budget) || p.lost && p.s.Yield != nil
}
