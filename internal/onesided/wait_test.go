package onesided

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

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
	<-a.rung
	<-b.rung
	s.remove(a)
	s.remove(b)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		bell := s.add()
		s.wake()
		s.remove(bell) // nothing was received from it
	}))
	require.Empty(t, s.add().rung, "a ring of the past")
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
	t.Run("goroutines", func(t *testing.T) { servedWaits(t, nil) })
	t.Run("threads", func(t *testing.T) { servedWaits(t, threads()) })
}

// threads are Threads that sleep on a condition.
func threads() *Threads {
	var mu sync.Mutex
	rung := sync.NewCond(&mu)
	ring := func() {
		mu.Lock()
		defer mu.Unlock()
		rung.Broadcast()
	}
	return &Threads{
		Sleep: func(word *uint32, atMost time.Duration) {
			mu.Lock()
			defer mu.Unlock()
			if atMost > 0 {
				defer time.AfterFunc(atMost, ring).Stop()
			}
			if atomic.LoadUint32(word) == 0 {
				rung.Wait()
			}
		},
		Wake: func(*uint32) { ring() },
	}
}

func servedWaits(t *testing.T, threads *Threads) {
	c, o := alone(t, false, func() error { panic("a barrier") })
	s := o.Space
	s.SetThreads(threads)
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
			symheap.Store8(s.Heap().Base, o.Off, v)
			server.Stored()
		}()
		polls := 0
		require.NoError(t, s.Wait(t.Context(), func() bool {
			polls++
			return symheap.Load8(s.Heap().Base, o.Off) == v
		}))
		<-stored
		require.LessOrEqual(t, polls, 8, "before each sleep, and when it was woken; a spin polls more often")
	}
}

// A fetch stores nothing, so it wakes no wait.
func TestAFetchWakesNobody(t *testing.T) {
	c, o := alone(t, false, nil)
	s := o.Space
	s.SetServed()
	var looks atomic.Int32
	ended := make(chan error)
	go func() {
		ended <- s.Wait(t.Context(), func() bool {
			looks.Add(1)
			return symheap.Load8(s.Heap().Base, o.Off) == 1
		})
	}()
	const armed = 2 // looks until it sleeps
	for looks.Load() < armed {
		runtime.Gosched()
	}
	asleep := func() int {
		s.sleepers.mu.Lock()
		defer s.sleepers.mu.Unlock()
		return len(s.sleepers.asleep)
	}
	var old uint64
	require.Zero(t, c.Fetch(symheap.Fetch, o, 0, 8, 0, 0, 0))
	c.FetchNBI(unsafe.Pointer(&old), symheap.Fetch, o, 0, 8, 0, 0, 0)
	require.Zero(t, c.AtomicFetch(o, 0, 8, 0))
	require.Equal(t, 1, asleep())
	require.Zero(t, c.Fetch(symheap.Add, o, 0, 8, 1, 0, 0))
	require.NoError(t, <-ended)
}

// A wait of a thread ends if a PE fails, whether that is before it sleeps or while it does, by its context, and by a store
// that wakes nobody.
func TestAWaitOfAThreadEnds(t *testing.T) {
	never := func() bool { return false }
	failure := errors.New("PE 1 has ended")
	for _, early := range []bool{true, false} {
		_, o := alone(t, false, nil)
		o.Space.SetThreads(threads())
		o.Space.SetServed()
		fail := func() { o.Space.Fail(failure, func() {}) }
		if early {
			fail()
		} else {
			go func() { sleeping(o.Space); fail() }()
		}
		require.ErrorIs(t, o.Space.Wait(t.Context(), never), failure)
	}
	_, o := alone(t, false, nil)
	s := o.Space
	s.SetThreads(threads())
	s.SetServed()
	s.SetRecheck(time.Millisecond)
	ctx, end := context.WithCancel(t.Context())
	go func() { sleeping(s); end() }()
	require.ErrorIs(t, s.Wait(ctx, never), context.Canceled)
	go func() { sleeping(s); symheap.Store8(s.Heap().Base, o.Off, 1) }()
	require.NoError(t, s.Wait(t.Context(), func() bool { return symheap.Load8(s.Heap().Base, o.Off) == 1 }))
}
