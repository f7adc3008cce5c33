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
	yields                int
	each                  func() // called by each poll; may be nil
}

func (s *testSource) Ready() bool {
	if s.polls++; s.each != nil {
		s.each()
	}
	return s.ready > 0 && s.polls >= s.ready
}

func (s *testSource) Stopped() bool { return s.stopped > 0 && s.polls >= s.stopped }
func (s *testSource) Yielded()      { s.yields++ }

func skipOneProcessor(t *testing.T) {
	if limit(false) == 0 {
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
		s := NewSpinner(c.most, nil)
		require.Equal(t, c.want, s.Spin(&c.src), c.name)
		require.Equal(t, c.src.polls > firstYield, c.src.yields > 0, "%s: others run", c.name)
		n := s.Counts()
		require.Equal(t, c.want == Hit, n.Hits == 1, c.name)
		require.Equal(t, c.want == Stopped || c.want == Missed, n.Misses == 1, c.name)
		require.Equal(t, c.want != None, n.Spins == 1, c.name)
	}
}

// once is Once with a Spinner of its own.
func once(src Source, budget time.Duration) Outcome {
	s := NewSpinner(budget, nil)
	return s.Once(src)
}

func TestOnceEndsAsASpinDoes(t *testing.T) {
	skipOneProcessor(t)
	require.Equal(t, Hit, once(&testSource{ready: 5000}, time.Hour))
	require.Equal(t, Stopped, once(&testSource{stopped: 5000}, time.Hour))
	require.Equal(t, Missed, once(&testSource{}, time.Nanosecond))
	require.Equal(t, None, once(&testSource{ready: 1}, 0))
	src := &testSource{ready: firstYield << maxFruitless}
	require.Equal(t, Hit, once(src, time.Hour))
	require.Equal(t, 1, src.yields, "it yields late")
}

func TestManyMissesParkLonger(t *testing.T) {
	var g guess
	spun := func(waits int) (n int) {
		for range waits {
			if g.spins() {
				n++
				g.miss()
			}
		}
		return n
	}
	require.Equal(t, 4, spun(8)) // every other one
	spun(200)
	require.Equal(t, 10, spun(640)) // one in 64
	g.hit(false)
	require.Equal(t, 1, spun(1))
}

// However many places wait, at most half of the processors are spun on.
func TestOneLimitForAllSpinners(t *testing.T) {
	skipOneProcessor(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(6))
	const most = 3
	var now, peak, inside atomic.Int32
	var over atomic.Bool
	var all sync.WaitGroup
	for range 4 * most {
		all.Go(func() {
			s := NewSpinner(time.Hour, nil)
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
	require.Zero(t, spinning.Load())
}

func TestNoSpinWhileTheAccountIsOverdrawn(t *testing.T) {
	skipOneProcessor(t)
	thrift := NewThrift()
	thrift.scarce.Store(int64(time.Hour))
	thrift.rest.Store(int64(time.Hour))
	s := NewSpinner(time.Hour, thrift)
	src := &testSource{ready: 1}
	require.Equal(t, None, s.Spin(src))
	require.Equal(t, Counts{Spared: 1}, s.Counts())
	require.Zero(t, src.polls)
	thrift.rest.Store(0)
	require.Equal(t, Hit, s.Spin(src))
	require.Negative(t, thrift.debt.Load(), "it saved a park")
}

func TestSpinsNoticeWhatTheSystemTakes(t *testing.T) {
	skipOneProcessor(t)
	thrift := NewThrift()
	thrift.takenBy = 1 // any time between two checks
	s := NewSpinner(time.Nanosecond, thrift)
	require.Equal(t, Missed, s.Spin(&testSource{}))
	require.NotZero(t, thrift.Taken())
	require.GreaterOrEqual(t, thrift.scarce.Load(), int64(scarceLeast))
}

// A thread that was woken is let run, unless that took long of late.
func TestWhoHasRungYields(t *testing.T) {
	thrift := NewThrift()
	s := NewSpinner(time.Hour, thrift)
	begin := time.Now()
	s.Rang()
	require.False(t, s.last.Before(begin), "others have had a chance to run")
	require.Zero(t, s.work)
	thrift.takenBy = 1 // any yield takes long
	for thrift.Taken() == 0 {
		s.Rang()
	}
	thrift.scarce.Store(int64(time.Hour))
	s.Rang()
	require.EqualValues(t, 1, thrift.Taken(), "processors are scarce")
	thrift.scarce.Store(0)
	s.Elsewhere()
	s.Rang()
	require.EqualValues(t, 1, thrift.Taken(), "another machine was rung")
}

func TestASpinDoesNotAllocate(t *testing.T) {
	s := NewSpinner(time.Hour, NewThrift())
	src := &testSource{ready: 1}
	require.Zero(t, testing.AllocsPerRun(1000, func() { s.Spin(src) }))
}

// A spin offers its processor between polls, where it is to. A slow offer ends it, and the next
// ones offer none for a while.
func TestSpinsOfferTheirProcessor(t *testing.T) {
	skipOneProcessor(t)
	synctest.Test(t, spinsOfferTheirProcessor)
}

// Goroutines of this process come before other processes.
func TestASpinYieldsBeforeItOffersItsProcessor(t *testing.T) {
	skipOneProcessor(t)
	synctest.Test(t, spinYieldsBeforeItOffersItsProcessor)
}

func spinYieldsBeforeItOffersItsProcessor(t *testing.T) {
	o, _ := offering(true)
	src := &testSource{ready: 100}
	o.yield = func() { require.NotZero(t, src.yields) }
	s := NewSpinner(time.Hour, nil)
	s.Offer(o, 1)
	require.Equal(t, Hit, s.Spin(src))
	require.NotZero(t, src.yields)
}

func spinsOfferTheirProcessor(t *testing.T) {
	o, offers := offering(true)
	s := NewSpinner(time.Minute, nil)
	s.Offer(o, 60)
	require.Equal(t, Hit, s.Spin(&testSource{ready: crowdedFrom + 1}))
	require.Zero(t, *offers)
	require.Equal(t, Hit, s.Spin(&testSource{ready: crowdedFrom + 101}))
	require.Equal(t, 100, *offers)
	o.yield = func() { time.Sleep(patient.slow) }
	src := &testSource{}
	require.Equal(t, Missed, s.Spin(src))
	require.Equal(t, crowdedFrom+1, src.polls)
	o.until.Store(int64(time.Hour))
	require.Equal(t, None, s.Spin(src), "because of the miss")
	src = &testSource{ready: 1000}
	require.Equal(t, Hit, s.Spin(src))
	require.Equal(t, 100, *offers, "it polls without offers")
	require.Zero(t, spinning.Load())
}
