package sdp_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// BenchmarkBareRing is what BenchmarkWindows of files has without a connection: one goroutine copies 64 KiB at a time into a
// ring of memory, and another one out of it. The ring is as large as the queue of a connection that is alone in a window of
// so many MiB. As with files, one that waits looks after 50 µs.
func BenchmarkBareRing(b *testing.B) {
	const piece = 64 << 10
	for _, r := range []struct{ window, size int }{{1, 512 << 10}, {2, 1 << 20}, {16, 4 << 20}, {64, 8 << 20}} {
		b.Run(fmt.Sprintf("MiB=%d", r.window), func(b *testing.B) {
			ring, slots := make([]byte, r.size), r.size/piece
			slot := func(n int) []byte { return ring[n%slots*piece:][:piece] }
			var stored, taken atomic.Int64
			var both sync.WaitGroup
			reader, writer := sleeper(b), sleeper(b)
			b.SetBytes(piece)
			b.ResetTimer()
			both.Go(func() {
				p := make([]byte, piece)
				for n := range b.N {
					for stored.Load() == int64(n) {
						reader()
					}
					copy(p, slot(n))
					if (n+1)%(slots/4) == 0 { // a connection returns credit as often
						taken.Store(int64(n + 1))
					}
				}
			})
			both.Go(func() {
				p := make([]byte, piece)
				for n := range b.N {
					for int64(n)-taken.Load() == int64(slots) {
						writer()
					}
					copy(slot(n), p)
					stored.Store(int64(n + 1))
				}
			})
			both.Wait()
		})
	}
}

// sleeper returns a function that sleeps for 50 µs.
func sleeper(b *testing.B) func() {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
	require.NoError(b, err)
	b.Cleanup(func() { unix.Close(fd) })
	return func() {
		at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(50 * time.Microsecond))}
		_ = unix.TimerfdSettime(fd, 0, &at, nil)
		_, _ = unix.Read(fd, make([]byte, 8))
	}
}
