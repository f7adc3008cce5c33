package bounce

import (
	"io"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pingPongs has n connections answer each other until the test ends. Each of them goes on.
func pingPongs(t *testing.T, pa, pb *Pool, n int) {
	var over atomic.Bool
	var all sync.WaitGroup
	t.Cleanup(all.Wait)
	t.Cleanup(func() { over.Store(true) })
	for range n {
		a, b := connect(t, pa, pb)
		all.Go(func() { io.Copy(readWriter{b}, readWriter{b}) })
		all.Go(func() {
			defer a.Close()
			for buf := make([]byte, 64); !over.Load(); {
				if _, err := a.Write(buf); err != nil {
					t.Error(err)
					return
				}
				if _, err := io.ReadFull(readWriter{a}, buf); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
}

type readWriter struct{ p *Pair }

func (r readWriter) Read(p []byte) (int, error)  { return r.p.Read(p) }
func (r readWriter) Write(p []byte) (int, error) { return r.p.Write(p) }

// Among connections that take turns, a Read ends by all that ends one that has parked.
func TestAReadInACrowdEnds(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(4)) // one goroutine of each side may spin
	pa, pb := memPools(t, spinning)
	pingPongs(t, pa, pb, 24)
	within(t, func() {
		for range 40 {
			for _, c := range []struct {
				name string
				end  func(a, b *Pair)
				err  error
			}{
				{"data", func(a, _ *Pair) { a.Write(make([]byte, 8)) }, nil},
				{"the end", func(a, _ *Pair) { a.CloseWrite() }, io.EOF},
				{"reset", func(a, _ *Pair) { a.Abort() }, syscall.ECONNRESET},
				{"deadline", func(_, b *Pair) { b.SetReadDeadline(time.Unix(1, 0)) }, os.ErrDeadlineExceeded},
				{"CloseRead", func(_, b *Pair) { b.CloseRead() }, io.EOF},
				{"Close", func(_, b *Pair) { b.Close() }, ErrClosed},
			} {
				a, b := connect(t, pa, pb)
				ended := make(chan error)
				go func() { _, err := b.Read(make([]byte, 8)); ended <- err }()
				for !b.r.waiter.parked.Load() {
					runtime.Gosched()
				}
				c.end(a, b)
				require.ErrorIs(t, <-ended, c.err, c.name)
				a.Close()
				b.Close()
			}
		}
	})
}
