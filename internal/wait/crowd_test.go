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
func (f *flags) Yielded()      {}

// seat is a place of a crowd whose waits a test ends.
type seat struct {
	*member
	flags
	ended chan Outcome
}

// sit has a goroutine wait as a member of c, in a bubble.
func sit(c *Crowd) *seat {
	s := &seat{member: &member{crowd: c, wake: make(chan struct{}, 1)}, ended: make(chan Outcome, 1)}
	go func() { s.ended <- s.sleep(&s.flags) }()
	synctest.Wait()
	return s
}

// opened returns a crowd that is open.
func opened() *Crowd {
	c := NewCrowd()
	c.open.Store(true)
	return c
}

// sits reports whether the wait goes on.
func (s *seat) sits() bool {
	synctest.Wait()
	return len(s.ended) == 0
}

func (c *Crowd) counts() [3]int {
	return [3]int{c.members.size, c.parked.size, int(c.waiting.Load())}
}

func TestTheFirstMemberThatIsReadyHasTheTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := opened()
		a, b, d := sit(c), sit(c), sit(c)
		require.False(t, c.scan(), "nobody is ready")
		d.ready.Store(true)
		require.True(t, c.scan())
		require.Equal(t, Hit, <-d.ended)
		require.True(t, a.sits() && b.sits())
		e := sit(c)
		e.ready.Store(true)
		b.ready.Store(true)
		require.True(t, c.scan())
		require.Equal(t, Hit, <-b.ended)
		require.True(t, a.sits() && e.sits())
		a.ready.Store(true)
		require.True(t, c.scan())
		require.True(t, c.scan())
		require.Equal(t, Hit, <-a.ended)
		require.Equal(t, Hit, <-e.ended)
		require.False(t, c.scan(), "nobody is left")
		require.Equal(t, [3]int{}, c.counts())
	})
}

// A wait that has given its turn away does not take it back because it is ready meanwhile.
func TestAMemberThatIsReadyWaitsForItsTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := opened()
		s := sit(c)
		s.ready.Store(true)
		s.tell() // without need
		require.True(t, s.sits())
		require.True(t, c.scan())
		require.Equal(t, Hit, <-s.ended)
	})
}

func TestAMemberThatIsStoppedLeaves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := opened()
		a, b, d := sit(c), sit(c), sit(c)
		for _, s := range []*seat{b, d, a} {
			s.stopped.Store(true)
			s.tell()
			require.Equal(t, Stopped, <-s.ended)
		}
		require.Equal(t, [3]int{}, c.counts())
		s := &seat{member: a.member}
		s.stopped.Store(true) // before it waits
		require.Equal(t, Stopped, s.sleep(&s.flags))
	})
}

func TestACrowdOpensBehindAQuickTurn(t *testing.T) {
	c := NewCrowd()
	var parked []*member
	park := func() {
		m := &member{crowd: c, wake: make(chan struct{}, 1)}
		require.Equal(t, None, m.refuse())
		c.park(m)
		parked = append(parked, m)
	}
	for range fewMembers - 2 {
		park()
		require.False(t, c.next(true))
		require.False(t, c.open.Load(), "%d wait", len(parked))
	}
	park()
	c.next(false)
	require.False(t, c.open.Load(), "that turn was not quick")
	c.next(true)
	require.True(t, c.open.Load())
	for _, m := range parked {
		require.Len(t, m.wake, 1, "it becomes a member")
		require.Equal(t, Crowded, m.refuse())
	}
	late := &member{crowd: c, wake: make(chan struct{}, 1)}
	c.park(late) // it was refused a place before
	require.Len(t, late.wake, 1)
	for _, m := range append(parked, late) {
		c.unpark(m)
	}
	require.Equal(t, [3]int{}, c.counts())
	c.next(true)
	require.False(t, c.open.Load(), "there are few")
}

func TestACrowdClosesBehindSlowTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := opened()
		var seats []*seat
		for range fewMembers {
			seats = append(seats, sit(c))
		}
		for range mostSlow - 1 {
			c.next(false)
		}
		c.next(true)
		for range mostSlow - 1 {
			c.next(false)
		}
		require.True(t, c.open.Load())
		c.next(false)
		require.False(t, c.open.Load())
		for _, s := range seats {
			require.Equal(t, None, <-s.ended, "it parks")
			require.Equal(t, None, s.sleep(&s.flags), "it parks at once")
		}
		require.Equal(t, [3]int{}, c.counts())
	})
}

func TestACrowdClosesWhenNobodyLooksAfterIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := opened()
		s := sit(c)
		for range 10 {
			time.Sleep(absent / 2)
			c.scan()
			require.True(t, s.sits())
		}
		start := time.Now()
		require.Equal(t, None, <-s.ended)
		require.LessOrEqual(t, time.Since(start), 2*absent)
		require.False(t, c.open.Load())
	})
}

func TestACrowdHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := opened()
		for range mostMembers {
			sit(c)
		}
		require.Equal(t, None, <-sit(c).ended)
		c.close()
	})
}

// timed returns a source that is ready after so many polls, or never. Each poll takes a bubble's time.
func timed(ready int) *testSource {
	return &testSource{ready: ready, each: func() { time.Sleep(time.Microsecond) }}
}

// crowding returns, in a bubble, a Spinner of an open crowd in which one member waits.
func crowding(t *testing.T) (*Spinner, *seat) {
	skipOneProcessor(t)
	c := opened()
	for range fewMembers {
		c.park(&member{crowd: c, wake: make(chan struct{}, 1)}) // so that it stays open
	}
	s := NewSpinner(time.Hour, nil)
	s.Join(c, make(chan struct{}, 1))
	s.Slept() // its turn begins
	m := &seat{member: &member{crowd: c, wake: make(chan struct{}, 1)}}
	require.True(t, c.join(m.member, &m.flags))
	c.timer.Stop()
	return &s, m
}

func TestALongWaitGivesItsTurnAway(t *testing.T) { synctest.Test(t, aLongWaitGivesItsTurnAway) }

func aLongWaitGivesItsTurnAway(t *testing.T) {
	for _, accepted := range []bool{false, true} {
		s, m := crowding(t)
		least := hurried
		if accepted {
			s.Accepted()
			least = unhurried
		}
		m.ready.Store(true)
		start := time.Now()
		require.Equal(t, Crowded, s.Spin(timed(0)))
		require.GreaterOrEqual(t, time.Since(start), least)
		require.Len(t, m.wake, 1)
		require.Zero(t, s.Counts().Misses)
	}
}

// Where answers take long anyway, as over a bridge, one that takes a little longer ends no turn.
func TestAWaitIsLongBesideTheOthersOfItsTurn(t *testing.T) {
	synctest.Test(t, aWaitIsLongBesideTheOthersOfItsTurn)
}

func aWaitIsLongBesideTheOthersOfItsTurn(t *testing.T) {
	s, m := crowding(t)
	m.ready.Store(true)
	start := time.Now()
	s.member.begin(start.Add(-10*time.Millisecond), 0)
	require.False(t, s.member.passes(29*time.Microsecond, start, 1000))
	s.member.begin(start, 1000)
	require.False(t, s.member.passes(29*time.Microsecond, start, 1001), "as in the turn before")
	require.Empty(t, m.wake)
	require.True(t, s.member.passes(31*time.Microsecond, start, 1001))
	require.Len(t, m.wake, 1)
}

// Callers that work for long between two hits do not keep their turn for that.
func TestAWaitIsLongAtLast(t *testing.T) { synctest.Test(t, aWaitIsLongAtLast) }

func aWaitIsLongAtLast(t *testing.T) {
	s, m := crowding(t)
	m.ready.Store(true)
	start := time.Now()
	s.member.begin(start.Add(-time.Second), 0)
	require.False(t, s.member.passes(atLast-1, start, 1000))
	require.True(t, s.member.passes(atLast, start, 1000))
	require.Len(t, m.wake, 1)
}

func TestATurnEnds(t *testing.T) { synctest.Test(t, aTurnEnds) }

func aTurnEnds(t *testing.T) {
	s, m := crowding(t)
	m.ready.Store(true)
	began := s.member.began
	for s.Spin(timed(1)) == Hit {
	}
	require.Len(t, m.wake, 1)
	require.GreaterOrEqual(t, time.Since(began), aTurn)
}

// A change of turns costs as much where answers take long, so a turn has as many of them.
func TestAQuickTurnHasEnoughHits(t *testing.T) { synctest.Test(t, aQuickTurnHasEnoughHits) }

func aQuickTurnHasEnoughHits(t *testing.T) {
	for _, turn := range []struct {
		took time.Duration
		hits uint64
		over bool
	}{
		{aTurn - 1, enoughHits, false},
		{aTurn, enoughHits, true},
		{mostTurn - 1, enoughHits - 1, false},
		{mostTurn, enoughHits - 1, true},
		{aTurn, 1, true}, // the caller does work
	} {
		s, m := crowding(t)
		m.ready.Store(true)
		start := time.Now()
		s.member.begin(start, 7)
		require.Equal(t, turn.over, s.member.over(start.Add(turn.took), 7+turn.hits), turn)
		require.Equal(t, turn.over, len(m.wake) > 0, turn)
	}
}

func TestATurnGoesOnWhereNobodyIsReady(t *testing.T) { synctest.Test(t, aTurnGoesOnWhereNobodyIsReady) }

func aTurnGoesOnWhereNobodyIsReady(t *testing.T) {
	s, m := crowding(t)
	for start := time.Now(); time.Since(start) < 4*aTurn; {
		require.Equal(t, Hit, s.Spin(timed(1)))
	}
	require.Empty(t, m.wake)
}

func TestASpinThatMissesClosesTheCrowd(t *testing.T) { synctest.Test(t, aSpinThatMissesClosesTheCrowd) }

func aSpinThatMissesClosesTheCrowd(t *testing.T) {
	s, m := crowding(t)
	s.budget = 1
	start := time.Now()
	require.Equal(t, Missed, s.Spin(timed(0)))
	require.GreaterOrEqual(t, time.Since(start), inCrowd)
	require.False(t, m.crowd.open.Load())
	require.Len(t, m.wake, 1)
	require.Equal(t, None, m.crowd.look(m.member, false))
}

func TestAWaitWithoutAPlaceTakesATurn(t *testing.T) { synctest.Test(t, aWaitWithoutAPlaceTakesATurn) }

func aWaitWithoutAPlaceTakesATurn(t *testing.T) {
	s, m := crowding(t)
	m.crowd.looked = true
	for enter() {
		t.Cleanup(leave)
	}
	src := new(flags)
	require.Equal(t, Crowded, s.Spin(src))
	ended := make(chan Outcome)
	go func() { ended <- s.TakeTurn(src) }()
	src.ready.Store(true)
	for !m.crowd.scan() {
		runtime.Gosched()
	}
	require.Equal(t, Hit, <-ended)
	n := s.Counts()
	require.EqualValues(t, 1, n.Hits)
	require.EqualValues(t, 1, n.Spins)
	m.crowd.close()
	require.Equal(t, None, s.Spin(src))
	s.Parks()
	require.Equal(t, fewMembers+1, m.crowd.parked.size)
	s.Unparks()
	s.Unparks() // no more than once
	require.Equal(t, fewMembers, m.crowd.parked.size)
}

// While processors are scarce, the wait that passes its turn on pays for its spin. What another wait saves
// by that is counted as well. Otherwise turns that pass quickly would make all waits park for a while.
func TestATurnThatIsTakenSavesAPark(t *testing.T) { synctest.Test(t, aTurnThatIsTakenSavesAPark) }

func aTurnThatIsTakenSavesAPark(t *testing.T) {
	s, m := crowding(t)
	m.crowd.looked = true
	s.thrift = NewThrift()
	src := new(flags)
	src.ready.Store(true)
	turn := func() {
		ended := make(chan Outcome)
		go func() { ended <- s.TakeTurn(src) }()
		for !m.crowd.scan() {
			runtime.Gosched()
		}
		require.Equal(t, Hit, <-ended)
	}
	turn()
	require.Zero(t, s.thrift.debt.Load(), "processors are not scarce")
	s.thrift.scarce.Store(int64(time.Hour))
	turn()
	require.Equal(t, -parkCost, time.Duration(s.thrift.debt.Load()))
	src.ready.Store(false)
	src.stopped.Store(true)
	require.Equal(t, Stopped, s.TakeTurn(src))
	require.Equal(t, -parkCost, time.Duration(s.thrift.debt.Load()))
}

func TestATurnDoesNotAllocate(t *testing.T) { synctest.Test(t, aTurnDoesNotAllocate) }

func aTurnDoesNotAllocate(t *testing.T) {
	if lock.Checked {
		t.Skip("checked locks allocate")
	}
	s, _ := crowding(t)
	src := new(flags)
	src.stopped.Store(true)
	require.Zero(t, testing.AllocsPerRun(100, func() { s.TakeTurn(src) }))
}

// Goroutines that answer each other all go on, though they are many more than may spin.
func TestManyWaitsAllEnd(t *testing.T) {
	skipOneProcessor(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4))
	const pairs, rounds = 64, 1000
	sides := [2]*Crowd{NewCrowd(), NewCrowd()}
	var all sync.WaitGroup
	for range pairs {
		var waits [2]flags
		wakes := [2]chan struct{}{make(chan struct{}, 1), make(chan struct{}, 1)}
		for i, c := range sides {
			all.Go(func() {
				s := NewSpinner(50*time.Microsecond, nil)
				s.Join(c, wakes[i])
				if i == 0 {
					waits[1].ready.Store(true)
				} else {
					s.Accepted()
				}
				for range rounds {
					for !waits[i].ready.Load() {
						o := s.Spin(&waits[i])
						if o == Crowded {
							o = s.TakeTurn(&waits[i])
						}
						if o == None || o == Missed {
							s.Parks()
							runtime.Gosched()
							s.Unparks()
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
		require.Equal(t, [3]int{}, c.counts())
	}
}
