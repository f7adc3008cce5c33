package onesided

import (
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/symheap"
	"github.com/ntbnet/ntbnet/internal/wait"
)

// countedSource is a source of a wait.Spinner that is ready.
type countedSource struct{}

func (countedSource) Ready() bool   { return true }
func (countedSource) Stopped() bool { return false }
func (countedSource) Yielded()      {}

// A wait for a word of the heap is one of the spins that the limit of the process is for. It gives way to
// those of connections, one of which may bring what the word waits for.
func TestAWaitCountsInTheLimitOfSpins(t *testing.T) {
	synctest.Test(t, testAWaitCountsInTheLimitOfSpins) // no offer takes long there
}

func testAWaitCountsInTheLimitOfSpins(t *testing.T) {
	if runtime.NumCPU() == 1 {
		t.Skip("nobody spins on one processor")
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2)) // one may spin
	_, o := alone(t, true, nil)
	lanes := wait.NewOffers(func() {}, nil)
	besides := func() bool { // whether a worker of a lane may spin
		p := lanes.Begin(time.Hour, 0)
		defer p.End()
		p.Leave()
		for range 2 {
			for !p.Due() {
			}
			if !p.Offer() {
				return false
			}
		}
		return true
	}
	spinner := wait.NewSpinner(time.Hour, nil)
	const third = 150 // poll
	polls, worker, connection := 0, true, wait.None
	require.True(t, o.Space.spin(func() bool {
		if polls++; polls == third { // after the second offer
			worker, connection = besides(), spinner.Spin(countedSource{})
		}
		return polls == third
	}, time.Hour))
	require.False(t, worker)
	require.Equal(t, wait.Hit, connection)
	require.True(t, besides(), "the wait is over")
}

// All sleepers are woken, and nothing is allocated for it.
func TestSleepersAreWoken(t *testing.T) {
	if lock.Checked {
		t.Skip("checked locks allocate")
	}
	var s sleepers
	a, b := s.add(), s.add()
	s.wake()
	<-a
	<-b
	s.remove(a)
	s.remove(b)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		bell := s.add()
		s.wake()
		s.remove(bell) // nothing was received from it
	}))
	require.Empty(t, s.add(), "a ring of the past")
}

// Where processes take turns at a processor, a wait offers its own after few polls.
func TestACrowdedWaitOffersSoon(t *testing.T) {
	synctest.Test(t, testACrowdedWaitOffersSoon) // no offer takes long there
}

func testACrowdedWaitOffersSoon(t *testing.T) {
	_, o := alone(t, true, nil)
	yields, polls := 0, 0
	o.Space.offers = wait.NewOffers(func() { yields++ }, nil)
	o.Space.SetCrowded()
	require.True(t, o.Space.spin(func() bool { polls++; return yields == 3 }, time.Hour))
	require.Equal(t, firstPolls+4, polls, "an offer after each poll from then on")
}

// sleeping waits until a goroutine sleeps, or is about to.
func sleeping(s *Space) {
	for n := 0; n == 0; runtime.Gosched() {
		s.sleepers.mu.Lock()
		n = len(s.sleepers.asleep)
		s.sleepers.mu.Unlock()
	}
}

// Where servers make all stores of other PEs, a wait leaves its processor to them, and needs no barrier in
// other processes. A server wakes it, and so does a store of this PE.
func TestAServedWaitSleepsAtOnce(t *testing.T) {
	c, o := alone(t, false, func() error { panic("a barrier") })
	s := o.Space
	s.offers = wait.NewOffers(func() { panic("an offer") }, nil)
	s.SetServed()
	server := s.Target(nil, nil)
	for v := uint64(1); v <= 1000; v++ {
		stored := make(chan struct{})
		go func() {
			defer close(stored) // before the next wait, which else would be woken for this store
			sleeping(s)
			if v%2 == 0 {
				c.P(o, 0, 8, v, 0, 0)
				return
			}
			symheap.Store8(s.Base(), o.Off, v)
			server.Stored()
		}()
		polls := 0
		require.NoError(t, s.Wait(t.Context(), func() bool {
			polls++
			return symheap.Load8(s.Base(), o.Off) == v
		}))
		<-stored
		require.LessOrEqual(t, polls, 2*firstPolls+3, "before it sleeps, and when it was woken")
	}
}
