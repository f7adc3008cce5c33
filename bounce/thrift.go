package bounce

import (
	"sync/atomic"
	"time"
)

// Thrift keeps waits from spinning where that costs more than it saves, and others need
// the processors. A fabric's pools share one.
//
// That processors are scarce is noticed at the spins themselves: one that takes a
// millisecond from one look to the next was stopped, because a quota was used up or because
// somebody else had a turn. Nothing needs to be known of quotas or of other processes, and
// what is noticed in proportion to the spinning is what it costs.
//
// While processors are scarce, an account is kept. A spin costs the time that it took; one
// that ended by data has saved what parking costs. Two sides that answer each other at
// once earn all the time, under a quota too, and go on. Where the account is overdrawn,
// waits park at once for a while. Then they try again, for too short a time to matter.
type Thrift struct {
	epoch   time.Time     // constant
	takenBy time.Duration // constant: the least time between two looks that the system took

	// In nanoseconds since epoch.
	scarce atomic.Int64 // processors are scarce until then; 0 if they never were
	rest   atomic.Int64 // waits park at once until then, while they are

	debt  atomic.Int64 // in nanoseconds, from -mostDebt to mostDebt
	taken atomic.Uint64
}

const (
	// takenBy is longer than a virtual machine usually keeps a processor away, and shorter
	// than a turn of another process or the rest of a quota's period.
	takenBy = time.Millisecond
	// scarceFor is how long one such event counts. Under a quota, and beside busy processes,
	// they come several times a second if much is spun.
	scarceFor = 10 * time.Second
	// parkCost is processor time, that of the peer included: a doorbell, and being woken.
	parkCost = 10 * time.Microsecond
	// mostDebt is what is spun for nothing of each restFor, at the most: one part in 40. It
	// is enough for some tens of answers of a peer that has to be woken. If that finds one
	// which spins as well, both go on.
	mostDebt = 500 * time.Microsecond
	restFor  = 20 * time.Millisecond
)

// NewThrift returns one that has not noticed anything.
func NewThrift() *Thrift { return &Thrift{epoch: time.Now(), takenBy: takenBy} }

// Taken is how often the system took the processor from a wait that spun.
func (t *Thrift) Taken() uint64 { return t.taken.Load() }

// spending is one spin.
type spending struct {
	thrift *Thrift
	looked time.Time // the clock was read last; the start before that
	cost   time.Duration
	scarce bool // processors are, and so the cost counts
}

// may reports whether the spin may begin.
func (s *spending) may() bool { return s.thrift.scarce.Load() == 0 || s.mayNow() }

func (s *spending) mayNow() bool {
	since := int64(s.looked.Sub(s.thrift.epoch))
	s.scarce = since < s.thrift.scarce.Load()
	return !s.scarce || since >= s.thrift.rest.Load()
}

// look follows some looks without anything between them.
func (s *spending) look(now time.Time) {
	if took := now.Sub(s.looked); took < s.thrift.takenBy {
		s.cost += took
	} else {
		s.thrift.taken.Add(1)
		s.thrift.scarce.Store(int64(now.Add(scarceFor).Sub(s.thrift.epoch)))
	}
	s.looked = now
}

// yielded follows what other goroutines had since the last look, which costs nothing.
func (s *spending) yielded(now time.Time) { s.looked = now }

// end ends the spin, after the last look.
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
