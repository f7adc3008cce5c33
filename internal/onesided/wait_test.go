package onesided

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/symheap"
)

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
