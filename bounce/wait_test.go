package bounce

import (
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// A token that was left from an earlier event wakes a Read without need. That says
// nothing about how long waits are, so later ones must spin as before.
func TestWakingForNothingDoesNotStopSpinning(t *testing.T) {
	pa, pb := memPools(t, Options{Spin: 0}) // so that only what wakes a wait counts
	a, b := connect(t, pa, pb)
	buf := make([]byte, 8)
	for range 20 {
		b.r.waiter.notify()
		time.AfterFunc(100*time.Microsecond, func() { a.Write(buf[:2]) })
		_, err := b.Read(buf)
		require.NoError(t, err)
	}
	require.Zero(t, b.r.waiter.spinner.Counts().Misses)
}

// What rang before a connection was made is nothing to it.
func TestANewConnectionHasNotRung(t *testing.T) {
	pa, pb := plainPools(t, Options{})
	a, b := connect(t, pa, pb)
	for pa.Peer().Rung() == 0 {
		done := make(chan error, 1)
		go func() { _, err := b.Read(make([]byte, 1)); done <- err }()
		_, err := a.Write(make([]byte, 1))
		require.NoError(t, err)
		require.NoError(t, <-done)
	}
	c, _ := connect(t, pa, pb)
	require.NotZero(t, c.r.waiter.rung)
	require.NotZero(t, c.w.waiter.rung)
}

func TestStallsAreCountedByReason(t *testing.T) {
	pa, pb := memPools(t, Options{Buffer: 64 << 10})
	a, b := connect(t, pa, pb)
	stalls := func() [3]uint64 {
		s := a.Stats()
		return [3]uint64{s.StallsFull, s.StallsLimit, s.StallsSmall}
	}
	done := make(chan error)
	go func() { _, err := a.Write(make([]byte, 1<<20)); done <- err }()
	for stalls()[0] == 0 { // the second queue, the largest, is full
		time.Sleep(time.Millisecond)
	}
	a.SetWriteDeadline(time.Unix(1, 0))
	require.ErrorIs(t, <-done, os.ErrDeadlineExceeded)
	first := stalls()
	require.NotZero(t, first[2], "the first queue is small")
	require.Zero(t, first[1])
	a.SetWriteBuffer(4 << 10)
	var reading sync.WaitGroup
	reading.Go(func() { io.Copy(io.Discard, b) })
	a.SetWriteDeadline(time.Time{})
	_, err := a.Write(make([]byte, 1<<20))
	require.NoError(t, err)
	a.CloseWrite()
	reading.Wait()
	require.NotZero(t, stalls()[1])
}

// A waiter that takes a token which was left from before finds what is published at
// that moment, or another token.
func TestTokenBesideTheLastOneIsNotLost(t *testing.T) {
	w := signal{wake: make(chan struct{}, 1)}
	mem := ntb.AlignedBytes(64)
	win := ntb.MappedWindow(mem, ntb.Cacheable)
	pauses := func(n uint64) {
		for range n {
			ntb.Pause()
		}
	}
	var ready, taken atomic.Uint64 // rounds
	var over atomic.Bool
	var ends sync.WaitGroup
	ends.Go(func() {
		for r := uint64(1); !over.Load(); r++ {
			for ready.Load() < r && !over.Load() {
			}
			pauses(r / 16 % 16)
			for ntb.Load64(mem, 0) < r && !over.Load() {
				<-w.wake
			}
			taken.Store(r)
		}
	})
	start := time.Now()
	for r := uint64(1); !over.Load(); r++ {
		w.notify()
		ready.Store(r)
		pauses(r % 16)
		win.Publish64(0, r)
		w.notify()
		begin := time.Now()
		for i := 1; taken.Load() < r; i++ {
			if i&0xfff != 0 {
				continue
			}
			if runtime.Gosched(); time.Since(begin) > time.Minute && !over.Swap(true) {
				t.Errorf("round %d: no token", r)
				w.notify()
			}
		}
		if time.Since(start) > time.Second {
			over.Store(true)
		}
	}
	ends.Wait()
}

// The remaining time of a deadline is computed once, when it is set. So a deadline without a
// monotonic part ends a wait even if the clock is set back meanwhile.
func TestADeadlineCountsWhenTheClockIsSetBack(t *testing.T) {
	var back atomic.Int64 // by how much the clock was set back
	var asked atomic.Int64
	o := Options{until: func(at time.Time) time.Duration {
		asked.Add(1)
		return time.Until(at) + time.Duration(back.Load())
	}}
	pa, pb := memPools(t, o)
	a, b := connect(t, pa, pb)
	within(t, func() {
		for _, wait := range []struct {
			set func(time.Time)
			end func() error
		}{
			{a.SetReadDeadline, func() error { _, err := a.Read(make([]byte, 1)); return err }},
			{b.SetWriteDeadline, func() error { _, err := b.Write(make([]byte, 32<<20)); return err }},
		} {
			back.Store(0)
			before := asked.Load()
			wait.set(time.Now().Round(0).Add(50 * time.Millisecond))
			back.Store(int64(time.Hour))
			require.Equal(t, os.ErrDeadlineExceeded, wait.end())
			require.Equal(t, before+1, asked.Load())
		}
	})
}

// A timer that fires while its deadline is moved ends nothing, and the new deadline counts.
func TestAMovedDeadlineIsTheOneThatCounts(t *testing.T) {
	w := signal{wake: make(chan struct{}, 1)}
	d := deadline{signal: &w}
	for range 2000 {
		d.limit(true, time.Nanosecond) // fires at any moment now
		d.limit(true, time.Hour)
		require.Zero(t, w.stop.Load())
		runtime.Gosched()
		require.Zero(t, w.stop.Load())
	}
	d.limit(true, time.Millisecond)
	within(t, func() {
		for w.stop.Load() == 0 {
			<-w.wake
		}
	})
	d.stop()
}
