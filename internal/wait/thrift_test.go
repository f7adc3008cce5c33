package wait

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// thriftAt returns a Thrift for which processors were often scarce, and a function that returns its clock's time some time
// after it was made.
func thriftAt() (*Thrift, func(time.Duration) time.Time) {
	t := NewThrift()
	t.scarceFor.Store(int64(scarceMost))
	return t, func(d time.Duration) time.Time { return t.epoch.Add(d) }
}

// take has the system take the processor at d for long enough.
func take(t *Thrift, at func(time.Duration) time.Time, d time.Duration) {
	s := spending{thrift: t, looked: at(d)}
	s.look(at(d + takenBy))
	s.end(false)
}

// spinFor spins at d for some time, if it may.
func spinFor(t *Thrift, at func(time.Duration) time.Time, d, long time.Duration, hit bool) bool {
	s := spending{thrift: t, looked: at(d)}
	may := s.may()
	if may {
		s.look(at(d + long))
		s.end(hit)
	}
	return may
}

// A processor that is lost once makes them scarce for a moment. If that happens again and again, it counts for long.
func TestProcessorsAreScarceForAsLongAsTheyGetLost(t *testing.T) {
	thrift, at := NewThrift(), func(d time.Duration) time.Time { return time.Time{}.Add(d) }
	thrift.epoch = at(0)
	until := func() time.Duration { return time.Duration(thrift.scarce.Load()) }
	now := time.Hour
	thrift.lost(at(now))
	require.Equal(t, now+scarceLeast, until())
	for lasts := 2 * scarceLeast; lasts < scarceMost; lasts *= 2 {
		now = until() + lasts/2 - 1 // within twice the time
		thrift.lost(at(now))
		require.Equal(t, now+lasts, until())
	}
	for range 2 {
		now = until()
		thrift.lost(at(now))
		require.Equal(t, now+scarceMost, until())
	}
	now = until() + scarceMost
	thrift.lost(at(now))
	require.Equal(t, now+scarceLeast, until())
}

func TestSpinsAreFreeWhileProcessorsAreNotScarce(t *testing.T) {
	thrift, at := thriftAt()
	for i := range time.Duration(10_000) {
		require.True(t, spinFor(thrift, at, i*takenBy, takenBy-1, false))
	}
	require.Zero(t, thrift.Taken())
}

func TestFruitlessSpinsRestWhileProcessorsAreScarce(t *testing.T) {
	thrift, at := thriftAt()
	take(thrift, at, 0)
	require.EqualValues(t, 1, thrift.Taken())
	now, spun := 2*takenBy, time.Duration(0)
	for ; spinFor(thrift, at, now, 50*time.Microsecond, false); now += 50 * time.Microsecond {
		spun += 50 * time.Microsecond
	}
	require.Equal(t, mostDebt+50*time.Microsecond, spun)
	require.False(t, spinFor(thrift, at, now-50*time.Microsecond+restFor-1, 0, false))
	require.True(t, spinFor(thrift, at, now+restFor, 0, false), "it tries again")
	take(thrift, at, now+restFor) // extends the time
	last := now + restFor + takenBy + scarceMost
	for d := last - 2*mostDebt; d < last; d += mostDebt / 2 {
		spinFor(thrift, at, d, mostDebt/2, false)
	}
	require.False(t, spinFor(thrift, at, last-1, 0, false), "it rests")
	require.True(t, spinFor(thrift, at, last, 0, false), "and no longer than processors are scarce")
}

// Two sides that answer each other at once go on spinning. They also do so after some
// misses, as when the system stops one of them.
func TestSpinsThatSaveProcessorTimeGoOn(t *testing.T) {
	thrift, at := thriftAt()
	take(thrift, at, 0)
	now := 2 * takenBy
	for range 1000 {
		for range 60 {
			require.True(t, spinFor(thrift, at, now, time.Microsecond, true))
			now += time.Microsecond
		}
		for range 10 {
			require.True(t, spinFor(thrift, at, now, 50*time.Microsecond, false))
			now += 50 * time.Microsecond
		}
		take(thrift, at, now)
		now += takenBy
	}
}

// A server that works for 20 µs on each request, as one of HTTP does, goes on being waited for.
func TestHitsOfAServerThatWorksGoOn(t *testing.T) {
	thrift, at := thriftAt()
	take(thrift, at, 0)
	now := 2 * takenBy
	for range 1000 {
		require.True(t, spinFor(thrift, at, now, 20*time.Microsecond, true))
		now += 40 * time.Microsecond
	}
}

// Hits that take longer than being woken do not pay.
func TestSlowHitsRestWhileProcessorsAreScarce(t *testing.T) {
	thrift, at := thriftAt()
	take(thrift, at, 0)
	n, each := 0, parkCost+25*time.Microsecond
	for now := 2 * takenBy; spinFor(thrift, at, now, each, true); now += each {
		n++
	}
	require.EqualValues(t, mostDebt/(25*time.Microsecond)+1, n)
}

// Time that other goroutines had, and time that the system took, was not spent.
func TestTimeAwayIsNotSpent(t *testing.T) {
	thrift, at := thriftAt()
	take(thrift, at, 0)
	now := 2 * takenBy
	for range 100 {
		s := spending{thrift: thrift, looked: at(now)}
		require.True(t, s.may())
		s.yielded(at(now + 50*time.Millisecond))
		s.look(at(now + 50*time.Millisecond + takenBy))
		s.end(false)
		now += 60 * time.Millisecond
	}
	require.EqualValues(t, 101, thrift.Taken(), "and what others had was not taken")
}
