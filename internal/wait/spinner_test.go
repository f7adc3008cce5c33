package wait

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// testSource is ready or stopped after so many polls, or never.
type testSource struct {
	polls, ready, stopped int
	each                  func() // called by each poll; may be nil
}

func (s *testSource) Ready() bool {
	if s.polls++; s.each != nil {
		s.each()
	}
	return s.ready > 0 && s.polls >= s.ready
}

func (s *testSource) Stopped() bool { return s.stopped > 0 && s.polls >= s.stopped }

func skipOneProcessor(t *testing.T) {
	if limit(clock(), false) == 0 {
		t.Skip("nobody spins on one processor")
	}
}

func TestASpinEndsAsItsSourceSays(t *testing.T) {
	skipOneProcessor(t)
	for _, c := range []struct {
		name string
		src  testSource
		most time.Duration
		want Outcome
	}{
		{"at once", testSource{ready: 1}, time.Hour, Hit},
		{"later", testSource{ready: 1000}, time.Hour, Hit},
		{"stopped", testSource{stopped: 1000}, time.Hour, Stopped},
		{"ready and stopped", testSource{ready: 1000, stopped: 1000}, time.Hour, Hit},
		{"over", testSource{}, time.Nanosecond, Missed},
		{"no budget", testSource{ready: 1}, 0, None},
	} {
		s := NewSpinner(Config{Budget: c.most})
		require.Equal(t, c.want, s.Spin(&c.src), c.name)
		n := s.Counts()
		require.Equal(t, c.want == Hit, n.Hits == 1, c.name)
		require.Equal(t, c.want == Stopped || c.want == Missed, s.misses == 1, c.name)
		require.Equal(t, c.want != None, n.Spins == 1, c.name)
	}
}

// A function's wait ends as that of a source does.
func TestAPollEndsAsItsFunctionSays(t *testing.T) {
	skipOneProcessor(t)
	look := func(ready int) func() bool {
		polls := 0
		return func() bool { polls++; return polls == ready }
	}
	for _, c := range []struct {
		ready  int
		budget time.Duration
		want   bool
	}{{1, 0, true}, {2, 0, false}, {5000, time.Hour, true}, {0, time.Nanosecond, false}} {
		s := NewSpinner(Config{Budget: c.budget})
		require.Equal(t, c.want, s.Poll(look(c.ready)), c)
	}
	s := NewSpinner(Config{Budget: time.Hour})
	require.Zero(t, testing.AllocsPerRun(100, func() { s.Poll(look(1)) }))
}

func TestManyMissesParkLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // where a stop of this process takes no time
		skipOneProcessor(t)
		forgetScarcity(t)
		s := NewSpinner(Config{Budget: time.Nanosecond})
		spun := func(waits int) (n int) {
			for range waits {
				if s.Spin(timed(0)) == Missed {
					n++
				}
			}
			return n
		}
		require.Equal(t, 4, spun(8)) // every other one
		spun(200)
		require.Equal(t, 10, spun(640)) // one in 64
		s.hit()
		require.Equal(t, 1, spun(1))
	})
}

// However many places wait, at most half of the processors are spun on.
func TestOneLimitForAllSpinners(t *testing.T) {
	skipOneProcessor(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(6))
	processors.procs.Store(0) // it is read again
	defer processors.procs.Store(0)
	const most = 3
	var now, peak, inside atomic.Int32
	var over atomic.Bool
	var all sync.WaitGroup
	for range 4 * most {
		all.Go(func() {
			s := NewSpinner(Config{Budget: time.Hour})
			src := &testSource{stopped: 1}
			src.each = func() {
				if src.polls != 1 {
					return
				}
				n := now.Add(1)
				for p := peak.Load(); n > p && !peak.CompareAndSwap(p, n); p = peak.Load() {
				}
				inside.Add(1)
				for !over.Load() {
					runtime.Gosched()
				}
			}
			if s.Spin(src) == None {
				require.Zero(t, src.polls)
				inside.Add(1)
			}
		})
	}
	require.Eventually(t, func() bool { return inside.Load() == 4*most }, 60*time.Second, time.Millisecond)
	require.EqualValues(t, most, peak.Load())
	over.Store(true)
	all.Wait()
	require.Zero(t, processors.spinning.Load())
}

// forgetScarcity has processors not be scarce, now and when the test ends.
func forgetScarcity(t *testing.T) {
	forget := func() {
		processors.scarce.Store(0)
		processors.lasts.Store(0)
		processors.event.Store(0)
	}
	forget()
	t.Cleanup(forget)
}

// While processors are scarce, only waits spin whose last spins have found something.
func TestSpinsThatFindNothingRestWhileProcessorsAreScarce(t *testing.T) {
	skipOneProcessor(t)
	forgetScarcity(t)
	s := NewSpinner(Config{Budget: time.Hour})
	processors.scarce.Store(int64(100 * time.Hour))
	processors.lasts.Store(int64(100 * time.Hour)) // a stop of this test does not end that
	require.Equal(t, Hit, s.Spin(&testSource{ready: 1000}))
	s.misses = 1
	require.Equal(t, Hit, s.Spin(&testSource{ready: 1}), "the one before may have found something")
	s.misses = 2
	src := &testSource{ready: 1}
	require.Equal(t, None, s.Spin(src))
	require.EqualValues(t, 1, s.Counts().Spared)
	require.Zero(t, src.polls)
	processors.scarce.Store(0)
	require.Equal(t, Hit, s.Spin(src))
}

func TestProcessorsAreScarceForAsLongAsTheyGetLost(t *testing.T) {
	forgetScarcity(t)
	now := clock() + time.Minute // events are later than the beginning
	event := func(after time.Duration) {
		now += after
		require.True(t, look(now-lostFor, now))
	}
	require.False(t, scarce(now))
	taken := Taken()
	require.False(t, look(now, now+lostFor-1))
	event(0)
	require.Equal(t, taken+1, Taken())
	for lasts := scarceLeast; lasts < scarceMost; lasts = min(2*lasts, scarceMost) {
		require.True(t, scarce(now+lasts-1))
		require.False(t, scarce(now+lasts))
		event(2*lasts - 1)
	}
	require.False(t, scarce(now+scarceMost), "no longer")
	event(2 * scarceMost)
	require.False(t, scarce(now+scarceLeast), "one event is forgotten")
}

// A spin from which the system takes the processor, and a yield that takes long, are noticed.
func TestSpinsNoticeWhatTheSystemTakes(t *testing.T) {
	skipOneProcessor(t)
	forgetScarcity(t)
	sleeps := &testSource{stopped: 1, each: func() { time.Sleep(lostFor) }}
	s := NewSpinner(Config{Budget: time.Hour})
	taken := Taken()
	require.Equal(t, Stopped, s.Spin(sleeps))
	require.Greater(t, Taken(), taken)
	require.NotZero(t, processors.scarce.Load())

	forgetScarcity(t)
	taken = Taken()
	y := NewSpinner(Config{Budget: time.Hour, Crowded: true, Yield: func() { time.Sleep(lostFor) }})
	src := new(testSource)
	require.Equal(t, Missed, y.Spin(src), "the others need the processor")
	require.Equal(t, pollsInCrowd, src.polls)
	require.Greater(t, Taken(), taken)
	processors.scarce.Store(int64(100 * time.Hour))
	y = NewSpinner(Config{Budget: time.Hour, Crowded: true, Yield: func() { t.Error("a yield") }})
	require.Equal(t, Missed, y.Spin(src), "it ends in place of its first yield")
}

// A spin yields after so many polls, and the time that others take counts for aWake at most.
func TestASpinYields(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		skipOneProcessor(t)
		forgetScarcity(t)
		for _, each := range []time.Duration{aWake / 4, aWake, 5 * aWake} {
			yields, budget := 0, 10*aWake
			s := NewSpinner(Config{Budget: budget, Crowded: true, Yield: func() { yields++; time.Sleep(each) }})
			require.Equal(t, Missed, s.Spin(timed(0)))
			counts := int(budget / (pollsInCrowd*time.Microsecond + min(each, aWake)))
			late := 1
			if each <= aWake { // it looks at the clock after pollsACheck
				late = pollsACheck / pollsInCrowd
			}
			require.InDelta(t, counts, yields, float64(late))
			require.EqualValues(t, yields, s.Counts().Yields)
		}
	})
}

// A wait that is always to spin does so beyond the limit, and takes no place.
func TestSomeWaitsAlwaysSpin(t *testing.T) {
	for enter(clock(), false) {
		defer leave()
	}
	for range 100 {
		s := NewSpinner(Config{Budget: time.Hour, Always: true})
		require.True(t, s.Poll(func() bool {
			full := NewSpinner(Config{Budget: time.Hour})
			return full.Spin(&testSource{ready: 1}) == None
		}))
	}
}

// A wait for another machine lasts until that is awake, after one that found nothing.
func TestAWaitForAnotherMachineLastsLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forgetScarcity(t)
		s := NewSpinner(Config{Budget: 10 * time.Microsecond, Remote: true})
		require.Equal(t, Missed, s.Spin(timed(0)))
		require.Equal(t, None, s.Spin(timed(1)))
		require.Equal(t, Hit, s.Spin(timed(1000)))
		require.Equal(t, Missed, s.Spin(timed(1000)))
	})
}

// One stop is one event, however many goroutines spun.
func TestAStopIsOneEvent(t *testing.T) {
	forgetScarcity(t)
	now, taken := clock(), Taken()
	for range 10 {
		require.True(t, look(now, now+lostFor))
	}
	require.Equal(t, taken+1, Taken())
	require.False(t, scarce(now+lostFor+scarceLeast))
}

// What another goroutine of this process takes is not lost. A stop of this process is, so one time without counts.
func TestAYieldToGoroutinesLosesNothing(t *testing.T) {
	forgetScarcity(t)
	for tries := 0; ; tries++ {
		processors.scarce.Store(0)
		yields, taken := 0, Taken()
		c := Config{Budget: time.Nanosecond, Always: true}.ForFrames(true)
		c.Yield = func() { yields++; time.Sleep(2 * lostFor) }
		s := NewSpinner(c)
		require.False(t, s.Poll(func() bool { return false }))
		if yields > 0 && Taken() == taken {
			return
		}
		require.Less(t, tries, 100)
	}
}

// A wait that always spins lets other goroutines run if it may be that it has the only processor.
func TestASpinOnTheLastProcessorYields(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	processors.procs.Store(0)
	defer processors.procs.Store(0)
	ran := make(chan bool, 1)
	s := NewSpinner(Config{Budget: time.Hour, Always: true, Once: true})
	go func() { ran <- true }()
	polls := 0
	require.True(t, s.Poll(func() bool { polls++; return len(ran) > 0 }))
	require.LessOrEqual(t, polls, 8*pollsACheck)
}

// Processors are full while more goroutines spin than they can run, and those of Config.Always count.
func TestMoreSpinThanProcessors(t *testing.T) {
	n := int32(runtime.GOMAXPROCS(0))
	processors.procs.Store(0) // it is read again
	limit(clock(), false)
	require.Equal(t, n == 1, full())
	processors.always.Add(n)
	t.Cleanup(func() { processors.always.Add(-n) })
	require.Equal(t, n == 1, full())
	processors.spinning.Add(1)
	t.Cleanup(leave)
	require.True(t, full())
}

// A look of a wait of SHMEM may take long, as it may be at many words. Then no processor was taken. A yield that takes long has
// lost it.
func TestALookMayTakeLong(t *testing.T) {
	skipOneProcessor(t)
	for _, crowded := range []bool{false, true} {
		forgetScarcity(t)
		yields, taken := 0, Taken()
		s := NewSpinner(Config{Budget: time.Hour, Always: true, Once: true, Crowded: crowded, Yield: func() {
			yields++
			require.Equal(t, taken, Taken())
			time.Sleep(lostFor)
		}})
		require.True(t, s.Poll(func() bool {
			if yields == 0 {
				time.Sleep(lostFor / 2)
			}
			return yields == 1
		}))
		require.Equal(t, taken+1, Taken())
	}
}

// A spin that another goroutine relieves is no miss.
func TestARelievedSpinIsNoMiss(t *testing.T) {
	skipOneProcessor(t)
	forgetScarcity(t)
	s := NewSpinner(Config{Budget: time.Hour})
	for range 2 * few {
		require.Equal(t, Stopped, s.Spin(&testSource{stopped: 1}))
		s.Relieved()
	}
}

// otherRuns reports whether f mostly lets another goroutine run, on one processor. The system may stop f, and Go then run the other
// one. Go does not always run first the one that is ready since last.
func otherRuns(t *testing.T, f func()) bool {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const tries = 100
	runs := 0
	for range tries {
		var ran atomic.Bool
		done := make(chan bool)
		go func() { ran.Store(true); close(done) }()
		f()
		if ran.Load() {
			runs++
		}
		<-done
	}
	return runs > tries/2
}

// Threads of C switch for each other goroutine, so their spins let none run. Nor do those of SHMEM where a processor is idle.
func TestSomeSpinsLetNoGoroutineRun(t *testing.T) {
	skipOneProcessor(t)
	processors.procs.Store(8)
	processors.read.Store(int64(100 * time.Hour)) // it is not read again
	defer processors.read.Store(0)
	defer processors.procs.Store(0)
	spin := func(c Config) func() {
		c.Budget, c.Always = time.Hour, true
		return func() {
			s := NewSpinner(c)
			polls := 0
			s.Poll(func() bool { polls++; return polls == 16*pollsACheck })
		}
	}
	require.True(t, otherRuns(t, spin(Config{})))
	require.False(t, otherRuns(t, spin(Config{Once: true})))
	processors.procs.Store(1)
	require.True(t, otherRuns(t, spin(Config{Once: true})))
	require.False(t, otherRuns(t, spin(Config{Thread: true})))
}

// Where a yield may be for nothing, who has rung does not yield.
func TestWhoHasRungDoesNotAlwaysYield(t *testing.T) {
	for _, c := range []struct {
		Config
		scarce, want bool
	}{
		{Config{Budget: time.Hour}, false, true},
		{Config{Budget: time.Hour}, true, false},
		{Config{}, false, false},
		{Config{Budget: time.Hour, Remote: true}, false, false},
		{Config{Budget: time.Hour, Thread: true}, false, false},
	} {
		s := NewSpinner(c.Config)
		require.Equal(t, c.want, otherRuns(t, func() {
			processors.scarce.Store(0) // whatever the last yield has found
			if c.scarce {
				processors.scarce.Store(int64(100 * time.Hour))
			}
			s.Rang()
		}), "%+v", c)
	}
	forgetScarcity(t)
}

// What other goroutines take during a spin was not lost. A stop of this process is, so one time without counts.
func TestGoroutinesTakeNothing(t *testing.T) {
	skipOneProcessor(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	forgetScarcity(t)
	for tries := 0; ; tries++ {
		taken := Taken()
		var ran atomic.Bool
		s := NewSpinner(Config{Budget: time.Hour})
		go func() {
			for start := clock(); clock()-start < 2*lostFor; {
			}
			ran.Store(true)
		}()
		require.Equal(t, Stopped, s.Spin(&testSource{stopped: 4 * pollsACheck}))
		if ran.Load() && Taken() == taken {
			return
		}
		require.Less(t, tries, 100)
	}
}

// The limit follows GOMAXPROCS, but does not ask for it each time.
func TestTheLimitFollowsGOMAXPROCS(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	defer processors.procs.Store(0)
	processors.procs.Store(0)
	now := clock() + time.Minute // no other read is later
	defer processors.read.Store(0)
	require.EqualValues(t, 1, limit(now, true))
	runtime.GOMAXPROCS(6)
	require.EqualValues(t, 1, limit(now+scarceLeast, true))
	require.EqualValues(t, 3, limit(now+scarceLeast+1, true))
}

func TestASpinDoesNotAllocate(t *testing.T) {
	s := NewSpinner(Config{Budget: time.Hour})
	src := &testSource{ready: 1}
	require.Zero(t, testing.AllocsPerRun(1000, func() { s.Spin(src) }))
}
