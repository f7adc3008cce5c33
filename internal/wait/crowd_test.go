package wait

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// occupied has as many goroutines spin as may, until the test ends.
func occupied(t *testing.T) {
	skipOneProcessor(t)
	for enter() {
		t.Cleanup(leave)
	}
}

// flags is a source that other goroutines make ready or stop.
type flags struct{ ready, stopped atomic.Bool }

func (f *flags) Ready() bool   { return f.ready.Load() }
func (f *flags) Stopped() bool { return f.stopped.Load() }
func (f *flags) Ended() bool   { return f.stopped.Load() }
func (f *flags) Yielded()      {}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, time.Minute, time.Millisecond, what)
}

// noCrowd waits until no goroutine polls for a crowd.
func noCrowd(t *testing.T) {
	t.Helper()
	for i := range crowds {
		eventually(t, "nobody polls for nobody", func() bool { return !crowds[i].polled.Load() })
		require.Nil(t, crowds[i].joined.Load())
	}
}

// refuse has fewWaits-1 waits park that are refused a spin, until the test ends.
func refuse(t *testing.T) {
	for range fewWaits - 1 {
		s := NewSpinner(time.Hour, nil)
		require.Equal(t, None, s.Spin(new(flags)))
		s.Parks()
		t.Cleanup(s.Unparks)
	}
}

func TestFewWaitsThatAreRefusedASpinPark(t *testing.T) {
	occupied(t)
	s := NewSpinner(time.Hour, nil)
	for range 2 * fewWaits { // one after the other
		require.Equal(t, None, s.Spin(new(flags)))
		s.Parks()
		require.EqualValues(t, 1, parked.Load())
		s.Unparks()
		require.Zero(t, parked.Load())
	}
	s.Parks() // its Spin was not refused
	require.Zero(t, parked.Load())
	s.Unparks()
	noCrowd(t)
}

func TestAWaitOfACrowdEndsAsItsSourceSays(t *testing.T) {
	occupied(t)
	refuse(t)
	for _, c := range []struct {
		name           string
		ready, stopped bool
		most           time.Duration
		want           Outcome
	}{
		{"ready", true, false, time.Hour, Hit},
		{"stopped", false, true, time.Hour, Stopped},
		{"ready and stopped", true, true, time.Hour, Hit},
		{"over", false, false, time.Nanosecond, Missed},
	} {
		s := NewSpinner(c.most, nil)
		src := new(flags)
		time.AfterFunc(time.Millisecond, func() {
			src.stopped.Store(c.stopped)
			src.ready.Store(c.ready)
		})
		switch got := s.Spin(src); {
		case c.ready && c.stopped:
			require.Contains(t, []Outcome{Hit, Stopped}, got, c.name)
		default:
			require.Equal(t, c.want, got, c.name)
			n := s.Counts()
			require.Equal(t, c.want == Hit, n.Hits == 1, c.name)
			require.Equal(t, c.want != Hit, n.Misses == 1, c.name)
			require.EqualValues(t, 1, n.Spins, c.name)
		}
		s.Parks() // a wait of a crowd was not refused
		s.Unparks()
	}
	require.EqualValues(t, fewWaits-1, parked.Load())
	noCrowd(t)
}

// While a crowd has few waits, those to come spin themselves again.
func TestACrowdOfFewEnds(t *testing.T) {
	occupied(t)
	refuse(t)
	s, src := NewSpinner(time.Hour, nil), new(flags)
	ended := make(chan Outcome)
	go func() { ended <- s.Spin(src) }()
	var c *crowd
	eventually(t, "it is polled", func() bool {
		for i := range crowds {
			if crowds[i].polled.Load() {
				c = &crowds[i]
			}
		}
		return c != nil
	})
	eventually(t, "it does not stay open", func() bool { return !c.open.Load() })
	require.True(t, c.polled.Load(), "a wait is left")
	src.ready.Store(true)
	require.Equal(t, Hit, <-ended)
	noCrowd(t)
}

// A wait may join when poll has seen none, and is about to end. It is polled in any case.
func TestAWaitThatJoinsAtTheEndIsPolled(t *testing.T) {
	c := new(crowd)
	c.polled.Store(true) // poll runs, and has called gather
	first := &turn{crowd: c}
	c.join(first)
	require.False(t, c.over())
	require.True(t, c.polled.Load())
	second := &turn{crowd: c}
	c.join(second)
	c.gather()
	require.Equal(t, []*turn{first, second}, c.waits)
	c.waits = nil
	require.True(t, c.over())
	require.False(t, c.polled.Load())
}

// Goroutines that answer each other, more than may spin, all go on. Nothing polls afterwards.
func TestManyWaitsAtOnceAllEnd(t *testing.T) {
	skipOneProcessor(t)
	for _, processors := range []int{2, 5} {
		t.Run("", func(t *testing.T) { answers(t, processors) })
	}
}

func answers(t *testing.T, processors int) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
	const pairs, rounds = 64, 300
	var all sync.WaitGroup
	for range pairs {
		var sides [2]flags
		for i := range sides {
			all.Go(func() {
				s := NewSpinner(time.Millisecond, nil)
				if i == 0 {
					sides[1].ready.Store(true)
				}
				for range rounds {
					for !sides[i].ready.Load() {
						if s.Spin(&sides[i]) == None {
							s.Parks()
							runtime.Gosched()
							s.Unparks()
						}
					}
					sides[i].ready.Store(false)
					sides[1-i].ready.Store(true)
				}
			})
		}
	}
	all.Wait()
	require.Zero(t, parked.Load())
	noCrowd(t)
	eventually(t, "no place is taken", func() bool { return spinning.Load() == 0 })
}

func TestAWaitOfACrowdDoesNotAllocate(t *testing.T) {
	occupied(t)
	refuse(t)
	long := new(flags) // keeps the crowds open
	var all sync.WaitGroup
	for range fewWaits * int(limit()) {
		all.Go(func() {
			s := NewSpinner(time.Hour, nil)
			s.Spin(long)
		})
	}
	s, src := NewSpinner(time.Hour, nil), new(flags)
	src.ready.Store(true)
	s.Spin(src)
	require.Zero(t, testing.AllocsPerRun(100, func() { s.Spin(src) }))
	long.ready.Store(true)
	all.Wait()
	noCrowd(t)
}
