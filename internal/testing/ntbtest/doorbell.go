package ntbtest

import (
	"errors"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/virtual"
	"github.com/ntbnet/ntbnet/ntb"
)

// ringAgain is the interval at which a lossy doorbell is rung until it is seen.
const ringAgain = time.Millisecond

// fewWakeups is how many times a wait may return for no reason in a subtest. The
// contract allows that, but a waiter must sleep most of the time.
const fewWakeups = 10

// waiter waits for one bit until the link goes down or the device is closed.
type waiter struct {
	wakeups atomic.Int64
	err     atomic.Pointer[error] // the error that ended it
}

func (e *env) waiter(d ntb.Device, bit int) *waiter {
	w := &waiter{}
	e.start(func() {
		for {
			if err := d.WaitDoorbell(bit); err != nil {
				w.err.Store(&err)
				return
			}
			if w.wakeups.Add(1); e.stop.Load() {
				return
			}
		}
	})
	return w
}

func (e *env) waiters(d ntb.Device) []*waiter {
	all := make([]*waiter, d.Caps().Doorbells)
	for bit := range all {
		all[bit] = e.waiter(d, bit)
	}
	return all
}

// ended waits until the waiter has ended with an error, which must be want.
func (e *env) ended(w *waiter, bit int, want error) {
	e.Helper()
	e.must("waiter ends", func() bool { return w.err.Load() != nil })
	if err := *w.err.Load(); !errors.Is(err, want) {
		e.Errorf("WaitDoorbell(%d) ended with %v, want %v", bit, err, want)
	}
}

// ringUntil rings once and waits for seen. Where doorbells are lossy, it rings
// again.
func (e *env) ringUntil(from ntb.Device, bit int, what string, seen func() bool) {
	e.Helper()
	from.RingDoorbell(bit)
	rung := time.Now()
	e.must(what, func() bool {
		if seen() {
			return true
		}
		if from.Caps().LossyDoorbells && time.Since(rung) > ringAgain {
			from.RingDoorbell(bit)
			rung = time.Now()
		}
		return false
	})
}

func bellBeforeWait(e *env) {
	for bit := range e.b.Caps().Doorbells {
		for range 3 {
			e.a.RingDoorbell(bit)
			var woken atomic.Bool
			e.start(func() {
				if err := e.b.WaitDoorbell(bit); err != nil {
					e.Errorf("WaitDoorbell(%d): %v", bit, err)
				}
				woken.Store(true)
			})
			if e.a.Caps().LossyDoorbells {
				e.ringUntil(e.a, bit, "doorbell seen", woken.Load)
			} else {
				e.must("doorbell seen that was rung before the wait", woken.Load)
			}
		}
	}
}

func bellWakesWaiter(e *env) {
	for bit, w := range e.waiters(e.b) {
		for range 3 {
			time.Sleep(time.Millisecond) // so that the waiter most likely sleeps
			before := w.wakeups.Load()
			e.ringUntil(e.a, bit, "waiter woken", func() bool { return w.wakeups.Load() > before })
		}
	}
}

func bellAlone(e *env, bit int) {
	all := e.waiters(e.b)
	for range 5 * fewWakeups {
		before := all[bit].wakeups.Load()
		e.ringUntil(e.a, bit, "waiter woken", func() bool { return all[bit].wakeups.Load() > before })
	}
	for i, w := range all {
		if n := w.wakeups.Load(); i != bit && n > fewWakeups {
			e.Errorf("ringing bit %d woke the waiter of bit %d %d times", bit, i, n)
		}
	}
	for i, w := range e.waiters(e.a) {
		if n := w.wakeups.Load(); n > fewWakeups {
			e.Errorf("ringing the peer's bit %d woke own waiter of bit %d %d times", bit, i, n)
		}
	}
}

// bellSilent stores without ringing. The stores could be taken for a doorbell.
func bellSilent(e *env) {
	all := append(e.waiters(e.a), e.waiters(e.b)...)
	out := e.a.Outbound()
	for r := uint64(1); r <= 50; r++ {
		out.Publish64(0, r)
		e.a.SetPeerSpad(0, uint32(r))
		e.a.Order()
		time.Sleep(time.Millisecond)
	}
	for i, w := range all {
		if n := w.wakeups.Load(); n > fewWakeups {
			e.Errorf("waiter %d of %d woke %d times, but nobody rang", i, len(all), n)
		}
		if err := w.err.Load(); err != nil {
			e.Errorf("waiter %d of %d ended with %v", i, len(all), *err)
		}
	}
}

func bellManyTimes(e *env) {
	n := 10000
	if testing.Short() {
		n = 100
	}
	e.mustReturn("RingDoorbell with nobody waiting", func() {
		for range n {
			for bit := range e.a.Caps().Doorbells {
				e.a.RingDoorbell(bit)
			}
		}
	})
	for bit, w := range e.waiters(e.b) {
		e.ringUntil(e.a, bit, "waiter woken", func() bool { return w.wakeups.Load() > 0 })
	}
}

// bellConversation has each side answer the other. A side checks memory, and then
// waits for a doorbell. Each store is followed by one ring. If a ring arrived
// before its store, or was lost between the check and the wait, both sides would
// sleep.
func bellConversation(e *env) {
	rounds, enough := uint64(5000), time.Second/2
	if testing.Short() {
		rounds, enough = 1000, time.Second/8
	}
	const atLeast = 20
	bit := min(1, e.a.Caps().Doorbells-1)
	var now atomic.Uint64 // the last round that a began
	var over atomic.Bool
	start := time.Now()

	// hear waits for the peer's word of round r.
	hear := func(d ntb.Device, r uint64) bool {
		for in := d.Inbound(); ntb.Load64(in, 0) < r; {
			if err := d.WaitDoorbell(bit); err != nil {
				e.Errorf("WaitDoorbell in round %d: %v", r, err)
				return false
			}
			if e.stop.Load() {
				return false
			}
		}
		return true
	}
	post := func(d ntb.Device, r uint64) {
		out := d.Outbound()
		out.Publish64(0, r)
		d.RingDoorbell(bit)
	}
	e.start(func() {
		defer over.Store(true)
		for r := uint64(1); ; r++ {
			now.Store(r)
			end := r == rounds || r >= atLeast && time.Since(start) > enough
			if end {
				post(e.a, r|lastRound)
				return
			}
			post(e.a, r)
			if !hear(e.a, r) {
				return
			}
		}
	})
	var answered atomic.Bool
	e.start(func() {
		defer answered.Store(true)
		for r := uint64(1); ; r++ {
			if !hear(e.b, r) {
				return
			}
			if ntb.Load64(e.b.Inbound(), 0)&lastRound != 0 {
				return
			}
			post(e.b, r)
		}
	})
	for !over.Load() || !answered.Load() {
		before := now.Load()
		progress := func() bool { return now.Load() > before || over.Load() && answered.Load() }
		if !e.a.Caps().LossyDoorbells {
			e.must("next round", progress)
			continue
		}
		var rung time.Time
		e.must("next round", func() bool {
			if time.Since(rung) > ringAgain {
				e.a.RingDoorbell(bit)
				e.b.RingDoorbell(bit)
				rung = time.Now()
			}
			return progress()
		})
	}
}

// lastRound is set in the last word of a conversation, which gets no answer.
const lastRound = 1 << 63

// give has other goroutines run, and a bubble's clock go on.
func give() {
	if virtual.Poll != nil {
		virtual.Poll()
	}
	runtime.Gosched()
}

// bellBesideLast rings while the previous doorbell is being taken. The waiter that
// takes that one must find what was published before the second ring, or be woken
// again. A device that leaves out a ring, because one is pending, must not decide that
// too early.
func bellBesideLast(e *env) {
	rounds, enough := uint64(200_000), time.Second/2
	if testing.Short() {
		rounds, enough = 20_000, time.Second/8
	}
	var ready, taken atomic.Uint64 // rounds
	var over atomic.Bool
	start := time.Now()
	e.start(func() {
		defer over.Store(true)
		out := e.a.Outbound()
		for r := uint64(1); r <= rounds && time.Since(start) < enough; r++ {
			e.a.RingDoorbell(0)
			ready.Store(r)
			if pauses(r % 16); r%16 == 0 {
				runtime.Gosched() // on one processor, the waiter takes the first ring now
			}
			out.Publish64(0, r)
			e.a.RingDoorbell(0)
			for taken.Load() < r {
				if give(); e.stop.Load() {
					return
				}
			}
		}
	})
	e.start(func() {
		for r := uint64(1); !over.Load(); r++ {
			for ready.Load() < r {
				if give(); over.Load() || e.stop.Load() {
					return
				}
			}
			pauses(r / 16 % 16)
			for in := e.b.Inbound(); ntb.Load64(in, 0) < r; {
				if err := e.b.WaitDoorbell(0); err != nil {
					e.Errorf("WaitDoorbell in round %d: %v", r, err)
					return
				}
			}
			taken.Store(r)
		}
	})
	for !over.Load() {
		before := taken.Load()
		e.must("next round", func() bool {
			if e.a.Caps().LossyDoorbells {
				e.a.RingDoorbell(0)
			}
			return taken.Load() > before || over.Load()
		})
	}
}

func pauses(n uint64) {
	for range n {
		ntb.Pause()
	}
}
