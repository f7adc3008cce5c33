package onesided

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/lock"
)

// Where other processes compute, each offer of the processor costs one turn of theirs. A
// wait makes one offer at most. The waits that follow sleep without one.
func TestAWaitDoesNotWaitForWorkOfOthers(t *testing.T) {
	const turn = 6 * time.Millisecond
	for name, crowded := range map[string]bool{"crowded": true, "a processor each": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := &Space{crowded: crowded, failed: make(chan struct{})}
				w.offers.epoch = time.Now()
				offers := 0
				w.offers.yield = func() { offers++; time.Sleep(turn) }
				never := func() bool { return false }
				for range 100 {
					require.False(t, w.spin(never, spinFor))
				}
				require.Equal(t, 1, offers)
				for n := range 10 {
					time.Sleep(slowMost * turn)
					require.False(t, w.spin(never, spinFor))
					require.Equal(t, n+2, offers, "after a while it is tried again")
				}
			})
		})
	}
}

// All sleepers are woken, and nothing is allocated for it.
func TestSleepersAreWoken(t *testing.T) {
	if lock.Checked {
		t.Skip("checked locks allocate")
	}
	var s sleepers
	a, b := s.lieDown(), s.lieDown()
	s.wake()
	<-a
	<-b
	s.getUp(a)
	s.getUp(b)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		bell := s.lieDown()
		s.wake()
		s.getUp(bell) // nothing was received from it
	}))
	require.Empty(t, s.lieDown(), "a ring of the past")
}
