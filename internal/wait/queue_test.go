package wait

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/stretchr/testify/require"
)

// flags is a source that other goroutines make ready or stop.
type flags struct{ ready, stopped atomic.Bool }

func (f *flags) Ready() bool   { return f.ready.Load() }
func (f *flags) Stopped() bool { return f.stopped.Load() }

// seat is a place whose waits a test ends.
type seat struct {
	*ticket
	flags
	ended chan Outcome
}

func newTicket(q *Queue) *ticket { return &ticket{queue: q, wake: make(chan struct{}, 1)} }

// sit has a goroutine wait in q, in a bubble.
func sit(q *Queue) *seat {
	s := &seat{ticket: newTicket(q), ended: make(chan Outcome, 1)}
	go func() { s.ended <- s.sleep(&s.flags) }()
	synctest.Wait()
	return s
}

// opened returns a queue that is open.
func opened() *Queue {
	q := new(Queue)
	q.open.Store(true)
	return q
}

// sits reports whether the wait goes on.
func (s *seat) sits() bool {
	synctest.Wait()
	return len(s.ended) == 0
}

func (q *Queue) counts() [2]int { return [2]int{len(q.waits), int(q.without.Load())} }

func (t *ticket) tell() { t.wake <- struct{}{} }

func TestTheFirstThatIsReadyHasTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := opened()
		a, b, d := sit(q), sit(q), sit(q)
		require.False(t, q.scan(), "nobody is ready")
		d.ready.Store(true)
		require.True(t, q.scan())
		require.Equal(t, Hit, <-d.ended)
		require.True(t, a.sits() && b.sits())
		e := sit(q)
		e.ready.Store(true)
		b.ready.Store(true)
		require.True(t, q.scan())
		require.Equal(t, Hit, <-b.ended)
		require.True(t, a.sits() && e.sits())
		a.ready.Store(true)
		require.True(t, q.scan())
		require.True(t, q.scan())
		require.Equal(t, Hit, <-a.ended)
		require.Equal(t, Hit, <-e.ended)
		require.False(t, q.scan(), "nobody is left")
		require.Equal(t, [2]int{}, q.counts())
	})
}

// A wait that has given its turn away does not take it back because it is ready meanwhile.
func TestAWaitThatIsReadyWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := opened()
		s := sit(q)
		s.ready.Store(true)
		s.tell() // without need
		require.True(t, s.sits())
		require.True(t, q.scan())
		require.Equal(t, Hit, <-s.ended)
	})
}

func TestAWaitThatIsStoppedLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := opened()
		a, b, d := sit(q), sit(q), sit(q)
		for _, s := range []*seat{b, d, a} {
			s.stopped.Store(true)
			s.tell()
			require.Equal(t, Stopped, <-s.ended)
		}
		require.Equal(t, [2]int{}, q.counts())
		s := &seat{ticket: a.ticket}
		s.stopped.Store(true) // before it waits
		require.Equal(t, Stopped, s.sleep(&s.flags))
	})
}

func TestAQueueOpensBehindAQuickTurn(t *testing.T) {
	q := new(Queue)
	s := Spinner{ticket: newTicket(q)}
	var unpark []func()
	for range manyWaits - 1 {
		require.Equal(t, None, s.ticket.refuse())
		unpark = append(unpark, s.Parks())
		require.False(t, q.next(true))
		require.False(t, q.open.Load(), "%d wait", len(unpark))
	}
	require.Equal(t, None, s.ticket.refuse())
	unpark = append(unpark, s.Parks())
	q.next(false)
	require.False(t, q.open.Load(), "that turn was not quick")
	q.next(true)
	require.True(t, q.open.Load())
	require.Equal(t, Queued, newTicket(q).refuse())
	for _, f := range unpark {
		f()
	}
	require.Equal(t, [2]int{}, q.counts())
	q.next(true)
	require.False(t, q.open.Load(), "there are few")
}

// A wait that a closed queue sends away, or a full one, parks for want of a place.
func TestAWaitThatTheQueueSendsAwayParks(t *testing.T) {
	for _, q := range []*Queue{new(Queue), {waits: make([]*ticket, manyWaits<<few)}} {
		q.open.Store(len(q.waits) > 0)
		s := Spinner{ticket: newTicket(q)}
		require.Equal(t, None, s.TakeTurn(&testSource{stopped: 1}))
		require.Zero(t, s.Counts().Spins)
		unpark := s.Parks()
		require.EqualValues(t, 1, q.without.Load())
		unpark()
		require.Zero(t, q.without.Load())
	}
}

func TestAQueueClosesBehindSlowTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := opened()
		var seats []*seat
		for range manyWaits {
			seats = append(seats, sit(q))
		}
		for range few - 1 {
			q.next(false)
		}
		q.next(true)
		for range few - 1 {
			q.next(false)
		}
		require.True(t, q.open.Load())
		q.next(false)
		require.False(t, q.open.Load())
		for _, s := range seats {
			require.Equal(t, None, <-s.ended, "it parks")
			require.Equal(t, None, s.sleep(&s.flags), "it parks at once")
		}
		require.Equal(t, [2]int{}, q.counts())
	})
}

func TestAQueueClosesWhenNobodyLooksAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := opened()
		s := sit(q)
		for range 10 {
			time.Sleep(lostFor)
			q.scan()
			require.True(t, s.sits())
		}
		start := time.Now()
		for range 8 { // which are not looked after either
			time.Sleep(lostFor / 2)
			sit(q)
		}
		require.Equal(t, None, <-s.ended)
		require.LessOrEqual(t, time.Since(start), 4*lostFor)
		require.False(t, q.open.Load())
		q.open.Store(true)
		require.Equal(t, None, <-sit(q).ended, "a queue that was empty")
	})
}

// timed returns a source that is ready after so many polls, or never. Each poll takes a bubble's time.
func timed(ready int) *testSource {
	return &testSource{ready: ready, each: func() { time.Sleep(time.Microsecond) }}
}

// turning returns, in a bubble, a Spinner of an open queue in which one wait sits.
func turning(t *testing.T) (*Spinner, *seat) {
	skipOneProcessor(t)
	q := opened()
	q.without.Add(manyWaits) // so that it stays open
	s := NewSpinner(Config{Budget: time.Hour})
	s.Join(q, make(chan struct{}, 1))
	s.ticket.began = clock()
	m := &seat{ticket: newTicket(q)}
	require.True(t, q.add(m.ticket, &m.flags))
	q.timer.Stop()
	return &s, m
}

func TestALongWaitGivesItsTurnAway(t *testing.T) { synctest.Test(t, aLongWaitGivesItsTurnAway) }

func aLongWaitGivesItsTurnAway(t *testing.T) {
	for _, accepted := range []bool{false, true} {
		s, m := turning(t)
		least := time.Duration(0)
		if accepted {
			s.Accepted()
			least = aWake
		}
		m.ready.Store(true)
		start := time.Now()
		require.Equal(t, Queued, s.Spin(&testSource{each: func() { time.Sleep(aWake / (4 * pollsACheck)) }}))
		require.GreaterOrEqual(t, time.Since(start), least)
		require.Less(t, time.Since(start), least+aWake)
		require.Len(t, m.wake, 1)
		require.Zero(t, s.misses)
	}
}

func TestATurnEnds(t *testing.T) { synctest.Test(t, aTurnEnds) }

func aTurnEnds(t *testing.T) {
	s, m := turning(t)
	m.ready.Store(true)
	began := s.ticket.began
	for s.Spin(timed(1)) == Hit {
		time.Sleep(time.Microsecond)
	}
	require.Len(t, m.wake, 1)
	require.GreaterOrEqual(t, clock()-began, aTurn)
}

// A turn whose caller takes long between its waits is slow, whatever the turn before was.
func TestATurnOfWorkIsSlow(t *testing.T) { synctest.Test(t, aTurnOfWorkIsSlow) }

func aTurnOfWorkIsSlow(t *testing.T) {
	s, m := turning(t)
	turn := func(between time.Duration) int {
		for began := s.ticket.began; s.ticket.began == began; {
			require.Equal(t, Hit, s.Spin(timed(1)))
			time.Sleep(between)
		}
		return m.queue.slow
	}
	require.Equal(t, 0, turn(0))
	require.Equal(t, 1, turn(quickHit))
	require.Equal(t, 2, turn(quickHit))
	require.Equal(t, 0, turn(0))
}

// A turn begins with the first wait after a sleep, however long that was.
func TestATurnBeginsAfterASleep(t *testing.T) { synctest.Test(t, aTurnBeginsAfterASleep) }

func aTurnBeginsAfterASleep(t *testing.T) {
	s, m := turning(t)
	m.ready.Store(true)
	for range 2 * few {
		time.Sleep(2 * aTurn)
		s.Parks()()
		require.Equal(t, Hit, s.Spin(timed(1)))
	}
	require.Empty(t, m.wake)
	require.True(t, m.queue.open.Load())
}

func TestATurnGoesOnWhereNobodyIsReady(t *testing.T) { synctest.Test(t, aTurnGoesOnWhereNobodyIsReady) }

func aTurnGoesOnWhereNobodyIsReady(t *testing.T) {
	s, m := turning(t)
	for start := time.Now(); time.Since(start) < 4*aTurn; {
		require.Equal(t, Hit, s.Spin(timed(1)))
	}
	require.Empty(t, m.wake)
}

func TestASpinThatMissesClosesTheQueue(t *testing.T) { synctest.Test(t, aSpinThatMissesClosesTheQueue) }

func aSpinThatMissesClosesTheQueue(t *testing.T) {
	s, m := turning(t)
	s.Budget = 1
	start := time.Now()
	require.Equal(t, Missed, s.Spin(timed(0)))
	require.GreaterOrEqual(t, time.Since(start), aTurn)
	require.False(t, m.queue.open.Load())
	require.Len(t, m.wake, 1)
	require.Equal(t, None, m.queue.ended(m.ticket, false))
}

func TestAWaitWithoutAPlaceTakesATurn(t *testing.T) { synctest.Test(t, aWaitWithoutAPlaceTakesATurn) }

func aWaitWithoutAPlaceTakesATurn(t *testing.T) {
	s, m := turning(t)
	m.queue.looked = true
	for enter(clock(), false) {
		t.Cleanup(leave)
	}
	src := new(flags)
	was := clock()
	s.ticket.began = was - 2*aTurn
	s.counts.Hits = 7
	require.Equal(t, Queued, s.Spin(src))
	ended := make(chan Outcome)
	go func() { ended <- s.TakeTurn(src) }()
	src.ready.Store(true)
	for !m.queue.scan() {
		runtime.Gosched()
	}
	require.Equal(t, Hit, <-ended)
	require.Equal(t, Counts{Spins: 1, Hits: 8}, s.Counts())
	require.EqualValues(t, 7, s.ticket.hits)
	m.ready.Store(true)
	require.False(t, s.ticket.turnOver(was+aTurn-1, 1), "its turn has begun")
	m.missed()
	without := m.queue.without.Load()
	require.Equal(t, None, s.Spin(src))
	unpark := s.Parks()
	require.Equal(t, without+1, m.queue.without.Load())
	unpark()
	require.Equal(t, without, m.queue.without.Load())
	unpark = s.Parks() // for another reason
	require.Equal(t, without, m.queue.without.Load())
	unpark()
	src.stopped.Store(true)
	m.queue.open.Store(true)
	require.Equal(t, Stopped, s.TakeTurn(src))
	require.Equal(t, 1, s.misses)
}

func TestATurnDoesNotAllocate(t *testing.T) { synctest.Test(t, aTurnDoesNotAllocate) }

func aTurnDoesNotAllocate(t *testing.T) {
	if lock.Checked {
		t.Skip("checked locks allocate")
	}
	s, _ := turning(t)
	src := new(flags)
	src.stopped.Store(true)
	require.Zero(t, testing.AllocsPerRun(100, func() { s.TakeTurn(src) }))
}

// Goroutines that answer each other all go on, though they are many more than may spin.
func TestManyWaitsAllEnd(t *testing.T) {
	skipOneProcessor(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	defer processors.procs.Store(0) // it is read again
	const pairs, rounds = 64, 1000
	sides := [2]*Queue{{}, {}}
	var all sync.WaitGroup
	for range pairs {
		var waits [2]flags
		wakes := [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}
		for i, c := range sides {
			all.Go(func() {
				s := NewSpinner(Config{Budget: 50 * time.Microsecond})
				s.Join(c, wakes[i])
				if i == 0 {
					waits[1].ready.Store(true)
				} else {
					s.Accepted()
				}
				for range rounds {
					for !waits[i].ready.Load() {
						o := s.Spin(&waits[i])
						if o == Queued {
							o = s.TakeTurn(&waits[i])
						}
						if o == None || o == Missed {
							unpark := s.Parks()
							runtime.Gosched()
							unpark()
						}
					}
					waits[i].ready.Store(false)
					waits[1-i].ready.Store(true)
				}
			})
		}
	}
	all.Wait()
	for _, c := range sides {
		require.Equal(t, [2]int{}, c.counts())
	}
}
