package wait

import (
	"sync/atomic"
	"time"
)

// Thrift keeps waits from spinning where that costs more than it saves, and other processes
// need the processors. All that waits in a fabric shares one.
//
// The spins themselves show that processors are scarce. One that takes a millisecond from
// one check to the next was stopped, because a quota was used up or because another process
// had a turn. Nothing needs to be known of quotas or of other processes. The more is spun,
// and so the more it costs, the more is noticed.
//
// While processors are scarce, an account is kept. A spin costs the time that it took. A
// spin that ended by data has saved what parking costs. Two sides that answer each other at
// once always gain, even under a quota, and go on. Where the account is overdrawn, waits
// park at once for a while. Then they try again, for too short a time to matter.
type Thrift struct {
	epoch   time.Time     // constant
	takenBy time.Duration // least time between two checks that the system took; constant

	// In nanoseconds since epoch.
	scarce    atomic.Int64 // processors are scarce until then; 0 if they never were
	scarceFor atomic.Int64 // how long the last event counts
	rest      atomic.Int64 // while they are, waits park at once until then

	debt  atomic.Int64 // in nanoseconds, from -mostDebt to mostDebt
	taken atomic.Uint64
}

const (
	// takenBy is longer than a virtual machine usually keeps a processor away, and shorter
	// than a turn of another process or the rest of a quota's period.
	takenBy = time.Millisecond
	// An event counts for scarceLeast, or if the last one counted until less than as long ago, for twice as long as that one, up to
	// scarceMost. One alone says little. Under a quota, and beside busy processes, they come several times a second if much
	// is spun.
	scarceLeast = 20 * time.Millisecond
	scarceMost  = 10 * time.Second
	// parkCost is the processor time of a park, the peer's included: a doorbell, and being
	// woken. A Read of a loop takes 10 to 15 µs, one of net/http some 30, where a processor is idle.
	parkCost = 30 * time.Microsecond
	// mostDebt is the most that is spun without success in each restFor, one part in 40. It
	// is enough for some tens of answers of a peer that has to be woken. If such a try
	// finds a peer that spins as well, both go on.
	mostDebt = 500 * time.Microsecond
	restFor  = 20 * time.Millisecond
)

// NewThrift returns a Thrift that has not noticed anything.
func NewThrift() *Thrift { return &Thrift{epoch: time.Now(), takenBy: takenBy} }

// Taken returns how often the system took the processor from a wait that spun or yielded.
func (t *Thrift) Taken() uint64 { return t.taken.Load() }

// spending is the cost of one spin.
type spending struct {
	thrift *Thrift   // nil if there is no account
	looked time.Time // when the clock was last read; the start before that
	cost   time.Duration
	scarce bool // processors are scarce, and so the cost counts
}

// may reports whether the spin may begin.
func (s *spending) may() bool {
	return s.thrift == nil || s.thrift.scarce.Load() == 0 || s.mayNow()
}

func (s *spending) mayNow() bool {
	since := int64(s.looked.Sub(s.thrift.epoch))
	s.scarce = since < s.thrift.scarce.Load()
	return !s.scarce || since >= s.thrift.rest.Load()
}

// look is called after some checks without anything between them.
func (s *spending) look(now time.Time) {
	if took := now.Sub(s.looked); s.thrift == nil || took < s.thrift.takenBy {
		s.cost += took
	} else {
		s.thrift.lost(now)
	}
	s.looked = now
}

// lost counts a processor that was lost by the time now.
func (t *Thrift) lost(now time.Time) {
	t.taken.Add(1)
	since, lasts := int64(now.Sub(t.epoch)), t.scarceFor.Load()
	if since < t.scarce.Load()+lasts {
		lasts = min(2*lasts, int64(scarceMost))
	} else {
		lasts = int64(scarceLeast)
	}
	t.scarceFor.Store(lasts)
	t.scarce.Store(since + lasts)
}

// yielded is called after other goroutines ran since the last check. Their time costs
// nothing.
func (s *spending) yielded(now time.Time) { s.looked = now }

// end ends the spin, after the last check.
func (s *spending) end(hit bool) {
	if !s.scarce {
		return
	}
	if hit {
		s.cost -= parkCost
	}
	t := s.thrift
	switch debt := time.Duration(t.debt.Add(int64(s.cost))); {
	case debt < -mostDebt:
		t.debt.Store(int64(-mostDebt))
	case debt > mostDebt:
		t.debt.Store(0)
		t.rest.Store(int64(s.looked.Add(restFor).Sub(t.epoch)))
	}
}

// saved counts a wait that ended at the time now because another one looked after it, so that nothing
// parked for it.
func (t *Thrift) saved(now time.Time) {
	s := spending{thrift: t, looked: now}
	s.may()
	s.end(true)
}
