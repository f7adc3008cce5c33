package meter

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Handover measures what the machine allows a round trip: one word is handed over between two threads
// and back, both of which poll. It measures for d, at most; with one processor for the two it measures nothing.
func Handover(d time.Duration) *Times {
	times := &Times{}
	if runtime.GOMAXPROCS(0) < 2 {
		return times
	}
	var words struct {
		_     [128]byte
		there atomic.Uint64
		_     [128]byte
		back  atomic.Uint64
		_     [128]byte
	}
	const end = 1 << 63
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		for last := uint64(0); last != end; {
			next := words.there.Load()
			if next != last {
				words.back.Store(next)
				last = next
			}
		}
	}()
	begun := time.Now()
	last := time.Duration(0)
	for i := uint64(1); last < d; i++ {
		words.there.Store(i)
		for words.back.Load() != i {
		}
		now := time.Since(begun)
		if i > 10 { // both run by then
			times.Add(now - last)
		}
		last = now
	}
	words.there.Store(end)
	<-done
	if times.Count() < 100 { // the two have never run at the same time
		return &Times{}
	}
	return times
}

// Copies measures what the machine allows a stream: pieces of 64 KiB are copied twice by one thread,
// as a stream over a buffer has to. The times are those of a MiB.
func Copies(d time.Duration) *Times {
	const piece = 64 << 10
	times := &Times{}
	from, via, to := make([]byte, piece), make([]byte, piece), make([]byte, piece)
	for i := range from {
		from[i] = 1
	}
	begun := time.Now()
	last := time.Duration(0)
	for last < d {
		for range (1 << 20) / piece {
			copy(via, from)
			copy(to, via)
		}
		now := time.Since(begun)
		times.Add(now - last)
		last = now
	}
	return times
}
