package bounce

import (
	"io"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/ntbdma"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/ntbnet/ntbnet/ring"
	"github.com/stretchr/testify/require"
)

// eachLink runs a test in virtual time for each kind of link between the two pools.
func eachLink(t *testing.T, o Options, f func(t *testing.T, pa, pb *Pool)) {
	links := map[string]func(t *testing.T) (pa, pb *Pool){
		"stores": func(t *testing.T) (pa, pb *Pool) { return memPools(t, o) },
		"DMA engine": func(t *testing.T) (pa, pb *Pool) {
			o.DMAThreshold = 512
			return dmaPools(t, o, ntbdma.Options{Channels: 1})
		},
		"frames": func(t *testing.T) (pa, pb *Pool) {
			return newHosts(t, ring.Options{Hosts: 3, Topology: ring.Line, NoSpin: true}, o).pools(0, 2)
		},
	}
	for name, link := range links {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				pa, pb := link(t)
				f(t, pa, pb)
			})
		})
	}
}

// A Read that has room for it returns a Write of up to 64 KiB whole, however small the queue.
func TestAReadReturnsAWriteWhole(t *testing.T) {
	eachLink(t, Options{}, func(t *testing.T, pa, pb *Pool) {
		for _, size := range []int{1, 249, 1000, 2000, 4096, 30_000, socketRoom} {
			for _, waits := range []bool{true, false} {
				a, b := connect(t, pa, pb)
				buf := make([]byte, 2*socketRoom)
				sizes := make(chan int)
				for warm := range 3 {
					go func() {
						if !waits {
							time.Sleep(time.Second)
						}
						n, err := b.Read(buf)
						if err != nil {
							t.Error(err)
						}
						sizes <- n
					}()
					synctest.Wait()
					_, err := a.Write(content(0, size))
					require.NoError(t, err)
					require.Equal(t, size, <-sizes, "the Read waits: %v, Writes before: %d", waits, warm)
					require.Equal(t, content(0, size), buf[:size])
				}
				require.NoError(t, b.Close())
				require.NoError(t, a.Close())
			}
		}
	})
}

// A writer that is stopped between two records of a Write holds up a Read for partTimeout, and
// for no longer than the Read may wait. What has come is not lost.
func TestAReadWaitsForTheRestOfAWrite(t *testing.T) {
	const part = 300
	for name, stop := range map[string]struct {
		do    func(a, b *Pair)
		takes time.Duration // from then on
		rest  bool          // the Write goes on later, and is read on then
		err   error         // of the next Read
	}{
		"for partTimeout":      {func(_, _ *Pair) {}, partTimeout / 2, true, nil},
		"until the deadline":   {func(_, b *Pair) { b.SetReadDeadline(time.Now()) }, 0, true, os.ErrDeadlineExceeded},
		"until CloseRead":      {func(_, b *Pair) { b.CloseRead() }, 0, true, io.EOF},
		"until Close":          {func(_, b *Pair) { b.Close() }, 0, false, ErrClosed},
		"until the end":        {func(a, _ *Pair) { a.CloseWrite() }, 0, false, io.EOF},
		"until a reset":        {func(a, _ *Pair) { a.Abort() }, 0, false, syscall.ECONNRESET},
		"while the link is up": {func(_, b *Pair) { b.pool.Down() }, 0, false, syscall.ECONNRESET},
	} {
		t.Run(name, func(t *testing.T) {
			eachLink(t, Options{}, func(t *testing.T, pa, pb *Pool) {
				a, b := connect(t, pa, pb)
				put := func(p []byte, together int) {
					a.w.mu.Lock()
					defer a.w.mu.Unlock()
					n, _ := a.w.put(p, together)
					require.Equal(t, part, n)
					a.w.bell.announce()
				}
				buf := make([]byte, 1000)
				done := make(chan int)
				go func() {
					n, err := b.Read(buf)
					if err != nil {
						t.Error(err)
					}
					done <- n
				}()
				synctest.Wait()
				begin := time.Now()
				put(content(0, part), 2*part)
				synctest.Wait()
				time.Sleep(partTimeout / 2)
				select {
				case n := <-done:
					t.Fatalf("Read has returned %d bytes", n)
				default:
				}
				stop.do(a, b)
				n := <-done
				require.Equal(t, partTimeout/2+stop.takes, time.Since(begin))
				require.Equal(t, content(0, part), buf[:n])
				if stop.err != nil {
					n, err := b.Read(buf)
					require.Zero(t, n)
					require.ErrorIs(t, err, stop.err)
				}
				if stop.rest {
					b.SetReadDeadline(time.Time{})
					put(content(part, part), part)
					synctest.Wait()
					n, err := b.Read(buf)
					require.NoError(t, err)
					require.Equal(t, content(part, part), buf[:n])
				}
			})
		})
	}
}

// A Read does not wait for ever for a Write whose parts come one by one, each soon enough.
func TestAReadEndsWithinAWrite(t *testing.T) {
	eachLink(t, Options{}, func(t *testing.T, pa, pb *Pool) {
		a, b := connect(t, pa, pb)
		begin, took := time.Now(), make(chan time.Duration, 1)
		go func() {
			if n, err := b.Read(make([]byte, socketRoom)); n == 0 || err != nil {
				t.Error(n, err)
			}
			took <- time.Since(begin)
		}()
		synctest.Wait()
		for range 4 * wholeTimeout / partTimeout {
			a.w.mu.Lock()
			_, _ = a.w.takeCredit()
			n, _ := a.w.put(content(0, 100), 200)
			a.w.bell.announce()
			a.w.mu.Unlock()
			if n == 0 {
				break // Read has returned, and gives no credit
			}
			time.Sleep(partTimeout / 2)
		}
		require.LessOrEqual(t, <-took, wholeTimeout+partTimeout)
		b.Abort()
		a.Abort()
	})
}

// A Read returns the part of a Write that lies before a bad record. The next one fails.
func TestABadRecordWithinAWrite(t *testing.T) {
	pa, pb := plainPools(t, Options{})
	a, b := connect(t, pa, pb)
	require.Equal(t, 300, a.w.tx.put(content(0, 300), 600))
	a.w.tx.publish(makeHeader(77, 0, kindFIN))
	buf := make([]byte, 1000)
	within(t, func() {
		n, err := b.Read(buf)
		require.NoError(t, err)
		require.Equal(t, content(0, 300), buf[:n])
		n, err = b.Read(buf)
		require.Zero(t, n)
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
}

// A Write announces some of its records only together. One that its deadline stops between two of them has announced them, as the
// reader may sleep.
func TestAWriteThatIsStoppedHasAnnouncedItsRecords(t *testing.T) {
	leak.Check(t)
	left, right := ntbmem.Pair(8 << 20)
	hooked := &stepped{Device: left}
	pa, pb := linkPools(t, hooked, right, Options{Buffer: 8 << 10})
	a, b := connect(t, pa, pb)
	var got atomic.Int64
	var all sync.WaitGroup
	all.Go(func() {
		for p := make([]byte, 32<<10); ; {
			n, err := b.Read(p)
			if err != nil {
				return
			}
			got.Add(int64(n))
		}
	})
	records := 0
	hooked.publish = func(v uint64) {
		if header(v).kind() != kindBulk {
			return
		}
		for records++; records == 2 && (got.Load() == 0 || !b.r.waiter.parked.Load()); time.Sleep(time.Millisecond) {
			// until the reader sleeps behind the first record
		}
		if records == 2 {
			a.SetWriteDeadline(time.Unix(1, 0))
		}
	}
	written, err := a.Write(make([]byte, 6<<10))
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	require.Greater(t, written, 1<<10)
	for end := time.Now().Add(30 * time.Second); got.Load() != int64(written); time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "%d of %d bytes were read", got.Load(), written)
	}
	a.Close()
	b.Close()
	all.Wait()
}
