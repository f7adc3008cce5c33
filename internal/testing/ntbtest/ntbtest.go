package ntbtest

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// limit is how long a wait may take before it fails. Tests of the suite itself
// shorten it.
var limit = 30 * time.Second

// minWindow is the smallest window in which the suite can work, in bytes.
const minWindow = 4096

// Run tests the devices that pair makes. Each call of pair must return the two ends
// of a new bridge, with the link up and windows of at least 4 KiB. Run closes both.
// What pair registers with t.Cleanup runs after that. Run must not run beside other
// tests, because it counts goroutines.
func Run(t *testing.T, pair func(t *testing.T) (a, b ntb.Device)) {
	RunIn(t, func(t *testing.T, f func(t *testing.T)) { f(t) }, pair)
}

// RunIn is Run with a function that calls that of each subtest, as testing/synctest's Test does.
func RunIn(t *testing.T, in func(t *testing.T, f func(t *testing.T)), pair func(t *testing.T) (a, b ntb.Device)) {
	s := suite{t, in, pair}

	s.both("capabilities are within their ranges and constant", capabilities)
	s.both("inbound window is zero, aligned and as long as the peer's outbound", windows)
	s.both("link is up at first", linkUpAtFirst)

	s.both("stores of all sizes arrive exactly", storesExact)
	s.both("large stores arrive exactly", largeStoresExact)
	s.both("published words arrive exactly", publishesExact)
	s.both("slices of the window store where they are", slicesExact)
	s.both("bytes filled in place arrive exactly", bytesExact)
	s.both("stores that do not fit panic and store nothing", misfits)
	s.run("stores arrive in the order of publishing, both ways at once", order)
	s.both("order makes earlier stores visible to the peer", orderDrains)
	s.run("order on both sides at once returns", orderBothSides)
	s.run("store, arm, order and look lose no wake-up", handshake)

	s.both("scratchpads are zero, then what the peer wrote", scratchpads)
	s.both("scratchpads are ordered after stores", scratchpadOrder)

	s.both("doorbell rung before the wait is not lost", bellBeforeWait)
	s.both("doorbell wakes a waiter", bellWakesWaiter)
	s.both("first doorbell wakes no other bit", func(e *env) { bellAlone(e, 0) })
	s.both("last doorbell wakes no other bit", func(e *env) { bellAlone(e, e.b.Caps().Doorbells-1) })
	s.run("doorbell that nobody rings wakes nobody", bellSilent)
	s.both("doorbell can be rung many times without blocking", bellManyTimes)
	s.run("doorbells alone carry a conversation", bellConversation)
	s.both("doorbell beside the last one is not lost", bellBesideLast)

	s.both("close is seen by the peer, repeatedly", closeSeenByPeer)
	s.both("close comes after what was stored before", closeAfterStores)
	s.both("close wakes own waiters and can be called twice", closeOwn)
	s.run("close on both sides at once returns", closeBothSides)
	s.both("close beside calls under way", closeBesideCalls)
	s.both("close after the link went down", closeAfterDown)
	s.both("disable takes the link down and keeps the windows", disable)

	s.both("DMA copies arrive and are done in order", dmaCopies)
	s.both("DMA source is the caller's when the copy is done", dmaSource)
	s.both("DMA memory is allocated, and no other is read", dmaMemory)
	s.both("DMA queue that is full blocks nobody", dmaFull)
	s.both("reclaimed pages are zero and usable", reclaim)
}

type suite struct {
	t    *testing.T
	in   func(t *testing.T, f func(t *testing.T))
	pair func(t *testing.T) (a, b ntb.Device)
}

// env is the environment of one subtest.
type env struct {
	*testing.T
	pair func(t *testing.T) (a, b ntb.Device)
	a, b ntb.Device

	users sync.WaitGroup // goroutines that use the devices
	stop  atomic.Bool    // the subtest is over, so they must end
}

// run runs f on a new bridge, closes it, and checks that no goroutines are left.
func (s suite) run(name string, f func(e *env)) { s.runSwapped(name, false, f) }

// both runs f twice, the second time with the ends swapped.
func (s suite) both(name string, f func(e *env)) {
	s.runSwapped(name, false, f)
	s.runSwapped(name+", other end", true, f)
}

func (s suite) runSwapped(name string, swap bool, f func(e *env)) {
	before := runtime.NumGoroutine()
	ok := s.t.Run(name, func(t *testing.T) {
		s.in(t, func(t *testing.T) {
			e := &env{T: t, pair: s.pair}
			e.a, e.b = s.pair(t)
			if swap {
				e.a, e.b = e.b, e.a
			}
			t.Cleanup(e.close)
			if n := min(len(e.a.Inbound()), len(e.b.Inbound())); n < minWindow {
				t.Fatalf("windows of %d bytes, the suite needs %d", n, minWindow)
			}
			f(e)
		})
	})
	if !ok {
		return // it may have stopped half-way
	}
	goroutinesEnd(s.t, name, before)
}

// close ends the goroutines of the subtest, and then closes the devices, since
// nothing may use their memory after Close.
func (e *env) close() {
	e.stop.Store(true)
	e.a.Disable()
	e.b.Disable()
	ended := make(chan struct{})
	go func() { e.users.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(2 * limit):
		e.Error("goroutines that use the devices do not end after Disable")
		return
	}
	for _, d := range []ntb.Device{e.a, e.b} {
		if err := d.Close(); err != nil {
			e.Errorf("Close: %v", err)
		}
	}
}

// start runs f in a goroutine that ends before the devices are closed. f may
// fail the test with Error, not with Fatal.
func (e *env) start(f func()) { e.users.Go(f) }

// wait waits until all that start has started has ended. Each has waits of its own
// that end, so together they may take a few times the limit.
func (e *env) wait(what string) {
	e.Helper()
	ended := make(chan struct{})
	go func() { e.users.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(3 * limit):
		e.Fatalf("after %v: still not: %s", 3*limit, what)
	}
}

// until waits for cond. It returns false after the limit, when it fails the test,
// and if the subtest is over.
func (e *env) until(what string, cond func() bool) bool {
	ok := e.poll(cond)
	if !ok && !e.stop.Load() {
		e.Errorf("after %v: still not: %s", limit, what)
	}
	return ok
}

// poll waits for cond, at first by spinning, and reports whether it became true.
func (e *env) poll(cond func() bool) bool {
	var deadline time.Time
	for i := 0; ; i++ {
		if cond() {
			return true
		}
		switch {
		case i < 200:
			ntb.Pause()
		case i < 2000:
			runtime.Gosched()
		default:
			time.Sleep(20 * time.Microsecond)
		}
		if i%100 != 99 {
			continue
		}
		if e.stop.Load() {
			return false
		}
		if deadline.IsZero() {
			deadline = time.Now().Add(limit)
		}
		if time.Now().After(deadline) {
			return cond()
		}
	}
}

// must is until for the goroutine of the subtest. It ends the subtest if cond does
// not become true.
func (e *env) must(what string, cond func() bool) {
	e.Helper()
	if !e.until(what, cond) {
		e.FailNow()
	}
}

// mustReturn runs f, which may block for ever, and fails if it does not return. f
// must end when the devices are disabled. It may fail the test with Error only.
func (e *env) mustReturn(what string, f func()) {
	e.Helper()
	done := make(chan struct{})
	e.start(func() { defer close(done); f() })
	select {
	case <-done:
	case <-time.After(limit):
		e.Fatalf("after %v: %s has not returned", limit, what)
	}
}

// allSpads reports whether every scratchpad of d is v.
func allSpads(d ntb.Device, v uint32) bool {
	for i := range d.Caps().Scratchpads {
		if d.Spad(i) != v {
			return false
		}
	}
	return true
}
