package bounce

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/testing/ntbdma"
	"github.com/ntbnet/ntbnet/internal/testing/recorder"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// poolService makes a Pool for each peer.
type poolService struct{ opts Options }

type poolHandler struct{ *Pool }

func (s poolService) Open(p *link.Peer) link.Handler { return poolHandler{NewPool(p, s.opts)} }
func (poolHandler) Message([]byte) error             { return nil }
func (s poolHandler) Down(error)                     { s.Pool.Down() }

// linkPools joins two nodes over a bridge and returns each one's pool.
func linkPools(t testing.TB, a, b ntb.Device, o Options) (pa, pb *Pool) {
	t.Helper()
	na, nb := link.NewNode(link.MakeID(1, 1)), link.NewNode(link.MakeID(1, 2))
	na.Register(link.ServiceSDP, poolService{o})
	nb.Register(link.ServiceSDP, poolService{o})
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	wg.Go(func() {
		p, err := nb.Up(ctx, b)
		if err != nil {
			t.Error(err)
			return
		}
		pb = p.Handler(link.ServiceSDP).(poolHandler).Pool
	})
	p, err := na.Up(ctx, a)
	require.NoError(t, err)
	pa = p.Handler(link.ServiceSDP).(poolHandler).Pool
	wg.Wait()
	require.NotNil(t, pb)
	if d, ok := a.(*recorder.Device); ok {
		recorders.Store(pa, d.Recorder())
	}
	t.Cleanup(func() {
		// This is the order in which a process ends: connections first.
		for _, p := range []*Pool{pa, pb} {
			p.closeAll()
		}
		na.Close()
		nb.Close()
	})
	return pa, pb
}

func (p *Pool) closeAll() {
	p.mu.Lock()
	pairs := p.all()
	p.mu.Unlock()
	for _, c := range pairs {
		c.Close()
	}
}

func connect(t testing.TB, pa, pb *Pool) (a, b *Pair) {
	t.Helper()
	a, err := pa.NewPair()
	require.NoError(t, err)
	b, err = pb.NewPair()
	require.NoError(t, err)
	recorderOf(pa).Connect(uint32(pb.peer.ID()), hello.Endpoint(a.Endpoint()), uint32(pa.peer.ID()), hello.Endpoint(b.Endpoint()))
	require.NoError(t, a.Connect(b.Endpoint()))
	require.NoError(t, b.Connect(a.Endpoint()))
	return a, b
}

// recorders are the recorders of the bridges between two pools, by the first pool.
var recorders sync.Map

// recorderOf returns the recorder of a pool's bridge, or nil if nothing is
// recorded.
func recorderOf(p *Pool) *recorder.Recorder {
	r, _ := recorders.Load(p)
	rec, _ := r.(*recorder.Recorder)
	return rec
}

func memPools(t testing.TB, o Options) (pa, pb *Pool) {
	a, b := recorder.For(t).Pair(ntbmem.Pair(8 << 20))
	return linkPools(t, a, b, o)
}

// plainPools is memPools without a recorder.
func plainPools(t testing.TB, o Options) (pa, pb *Pool) {
	a, b := ntbmem.Pair(8 << 20)
	return linkPools(t, a, b, o)
}

// spinning are the options of real use; the zero Options park at once.
var spinning = Options{Spin: DefaultSpin}

// within fails if f takes longer than any honest run would.
func within(t testing.TB, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(60 * time.Second):
		t.Fatal("hangs")
	}
}

func TestBytesArriveInOrderBothWays(t *testing.T) {
	for _, o := range []Options{spinning, {}, {Buffer: 4096}} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			pa, pb := memPools(t, o)
			a, b := connect(t, pa, pb)
			const n = 3 << 20
			within(t, func() {
				var wg sync.WaitGroup
				for i, c := range []*Pair{a, b} {
					wg.Go(func() {
						src := rand.NewChaCha8([32]byte{byte(i)})
						rnd := rand.New(rand.NewPCG(uint64(i), 9))
						for left := n; left > 0; {
							p := make([]byte, min(left, 1+rnd.IntN(1<<(1+rnd.IntN(17)))))
							src.Read(p)
							k, err := c.Write(p)
							if err != nil || k != len(p) {
								t.Errorf("write: %d, %v", k, err)
								return
							}
							left -= k
						}
						c.CloseWrite()
					})
					wg.Go(func() {
						want := make([]byte, n)
						rand.NewChaCha8([32]byte{byte(1 - i)}).Read(want)
						got, err := io.ReadAll(c)
						if err != nil || !bytes.Equal(got, want) {
							t.Errorf("end %d: %d bytes, %v, equal %v", i, len(got), err, bytes.Equal(got, want))
						}
					})
				}
				wg.Wait()
			})
			require.Equal(t, uint64(n), func() uint64 { s := a.Stats(); return s.BytesWritten() }())
			require.Equal(t, uint64(n), b.Stats().BytesRead)
		})
	}
}

// How much the writer can put in flight does not depend on the reader. As with TCP,
// both sides may write some data before either reads.
func TestQueueGrowsWithoutReader(t *testing.T) {
	pa, pb := memPools(t, spinning)
	a, b := connect(t, pa, pb)
	p := make([]byte, 512<<10)
	within(t, func() {
		_, err := a.Write(p)
		require.NoError(t, err)
		_, err = b.Write(p)
		require.NoError(t, err)
		_, err = io.ReadFull(a, p)
		require.NoError(t, err)
		_, err = io.ReadFull(b, p)
		require.NoError(t, err)
	})
	require.Equal(t, uint64(2), a.Stats().MovesWritten)
	require.Equal(t, uint64(2), b.Stats().MovesRead)
}

func TestMemoryReturnsToThePool(t *testing.T) {
	pa, pb := memPools(t, spinning)
	for range 300 {
		a, b := connect(t, pa, pb)
		within(t, func() {
			var wg sync.WaitGroup
			wg.Go(func() { a.Write(make([]byte, 100<<10)); a.Close() })
			_, err := io.Copy(io.Discard, b)
			require.NoError(t, err)
			wg.Wait()
			b.Close()
		})
	}
	for _, p := range []*Pool{pa, pb} {
		require.Eventually(t, func() bool {
			p.mu.Lock()
			defer p.mu.Unlock()
			return p.blocks.used == 0 && len(p.pairs) == 0
		}, 60*time.Second, time.Millisecond)
		s, open := p.Stats()
		require.Zero(t, open)
		require.Equal(t, uint64(300*100<<10), s.BytesWritten()+s.BytesRead)
	}
}

// The link's goroutine has a half's lock for a moment when the connection is removed.
func TestCountersOfAClosedConnectionAreKept(t *testing.T) {
	for _, half := range []string{"reader", "writer"} {
		pa, pb := memPools(t, Options{})
		a, b := connect(t, pa, pb)
		p := make([]byte, 1000)
		for from, to := range map[*Pair]*Pair{a: b, b: a} {
			_, err := from.Write(p)
			require.NoError(t, err)
			_, err = io.ReadFull(to, p)
			require.NoError(t, err)
		}
		b.Close()
		var release func()
		if half == "reader" {
			release = hold(&b.r.mu)
		} else {
			release = hold(&b.w.mu)
		}
		a.Close()
		require.Eventually(t, func() bool { return pb.Used().Pairs == 0 }, 60*time.Second, time.Millisecond)
		s, _ := pb.Stats()
		release()
		require.EqualValues(t, len(p), s.BytesRead, "%s held", half)
		require.EqualValues(t, len(p), s.BytesWritten(), "%s held", half)
	}
}

// Memory is not given to another connection before the peer has stopped.
func TestClosedEndKeepsItsMemoryUntilThePeerStops(t *testing.T) {
	pa, pb := memPools(t, spinning)
	a, b := connect(t, pa, pb)
	a.Close()
	used := func(p *Pool) int { p.mu.Lock(); defer p.mu.Unlock(); return p.blocks.used }
	require.Equal(t, minQueue, used(pa))
	b.Close()
	for _, p := range []*Pool{pa, pb} {
		require.Eventually(t, func() bool { return used(p) == 0 }, 60*time.Second, time.Millisecond)
	}
}

func TestWindowFull(t *testing.T) {
	a, b := ntbmem.Pair(128 << 10)
	pa, _ := linkPools(t, a, b, spinning)
	var pairs []*Pair
	for {
		c, err := pa.NewPair()
		if err != nil {
			require.ErrorIs(t, err, syscall.ENOBUFS)
			break
		}
		pairs = append(pairs, c)
	}
	require.Greater(t, len(pairs), 5)
	for _, c := range pairs {
		pa.Discard(c)
	}
	c, err := pa.NewPair()
	require.NoError(t, err)
	pa.Discard(c)
}

func TestEnds(t *testing.T) {
	buf := make([]byte, 10)
	for name, f := range map[string]func(t *testing.T, a, b *Pair){
		"close: data, then EOF": func(t *testing.T, a, b *Pair) {
			a.Write([]byte("last"))
			a.Close()
			got, err := io.ReadAll(b)
			require.NoError(t, err)
			require.Equal(t, "last", string(got))
		},
		"link down: what the peer stores later changes nothing": func(t *testing.T, a, b *Pair) {
			b.linkDown() // nobody knows whether something is missing
			_, err := b.Write(buf)
			require.ErrorIs(t, err, syscall.ECONNRESET)
			a.linkDown()
			a.Close()
			require.NotZero(t, b.control.state()&stateStopped)
			for range 2 {
				_, err = b.Read(buf)
				require.ErrorIs(t, err, syscall.ECONNRESET)
			}
		},
		"close: the peer's write fails": func(t *testing.T, a, b *Pair) {
			a.Close()
			require.Eventually(t, func() bool {
				_, err := b.Write([]byte("x"))
				return err == syscall.EPIPE
			}, 60*time.Second, time.Millisecond)
		},
		"close: own calls fail": func(t *testing.T, a, b *Pair) {
			require.NoError(t, a.Close())
			_, err := a.Read(buf)
			require.Equal(t, ErrClosed, err)
			_, err = a.Write(buf)
			require.Equal(t, ErrClosed, err)
			require.Equal(t, ErrClosed, a.Close())
			require.Equal(t, ErrClosed, a.CloseWrite())
			require.Equal(t, ErrClosed, a.CloseRead())
		},
		"close wakes own read": func(t *testing.T, a, b *Pair) {
			go func() { time.Sleep(20 * time.Millisecond); a.Close() }()
			_, err := a.Read(buf)
			require.Equal(t, ErrClosed, err)
		},
		"close wakes own write": func(t *testing.T, a, b *Pair) {
			go func() { time.Sleep(20 * time.Millisecond); a.Close() }()
			_, err := a.Write(make([]byte, 8<<20))
			require.Equal(t, ErrClosed, err)
		},
		"close wakes the peer's blocked write": func(t *testing.T, a, b *Pair) {
			go func() {
				if _, err := a.Read(make([]byte, 1)); err != nil { // so there is more
					t.Error(err)
				}
				time.Sleep(20 * time.Millisecond)
				a.Close()
			}()
			_, err := b.Write(make([]byte, 8<<20))
			require.Equal(t, syscall.ECONNRESET, err, "a closed with unread data")
		},
		"abort: data, then reset": func(t *testing.T, a, b *Pair) {
			a.Write([]byte("last"))
			a.Abort()
			got, err := io.ReadAll(b)
			require.ErrorIs(t, err, syscall.ECONNRESET)
			require.Equal(t, "last", string(got))
			_, err = b.Write(buf)
			require.Equal(t, syscall.EPIPE, err, "ECONNRESET was returned before")
			_, err = b.Read(buf)
			require.Equal(t, io.EOF, err)
		},
		"abort: reset, then a broken pipe": func(t *testing.T, a, b *Pair) {
			a.Abort()
			_, err := b.Write(buf)
			require.ErrorIs(t, err, syscall.ECONNRESET)
			_, err = b.Write(buf)
			require.Equal(t, syscall.EPIPE, err)
			_, err = b.Read(buf)
			require.Equal(t, io.EOF, err)
		},
		"close with unread data resets": func(t *testing.T, a, b *Pair) {
			_, err := a.Write([]byte("answer"))
			require.NoError(t, err)
			_, err = b.Write([]byte("unread"))
			require.NoError(t, err)
			require.NoError(t, a.Close())
			got, err := io.ReadAll(b)
			require.ErrorIs(t, err, syscall.ECONNRESET)
			require.Equal(t, "answer", string(got))
		},
		"abort wakes the peer's read": func(t *testing.T, a, b *Pair) {
			go func() { time.Sleep(20 * time.Millisecond); a.Abort() }()
			_, err := b.Read(buf)
			require.ErrorIs(t, err, syscall.ECONNRESET)
		},
		"half close": func(t *testing.T, a, b *Pair) {
			require.NoError(t, a.CloseWrite())
			_, err := a.Write(buf)
			require.Equal(t, syscall.EPIPE, err)
			_, err = b.Read(buf)
			require.Equal(t, io.EOF, err)
			_, err = b.Write([]byte("answer"))
			require.NoError(t, err)
			n, err := a.Read(buf)
			require.NoError(t, err)
			require.Equal(t, "answer", string(buf[:n]))
		},
		"close write wakes own write": func(t *testing.T, a, b *Pair) {
			go func() { time.Sleep(20 * time.Millisecond); a.CloseWrite() }()
			_, err := a.Write(make([]byte, 8<<20))
			require.Equal(t, syscall.EPIPE, err)
		},
		"close read": func(t *testing.T, a, b *Pair) {
			go func() { time.Sleep(20 * time.Millisecond); a.CloseRead() }()
			_, err := a.Read(buf)
			require.Equal(t, io.EOF, err)
			_, err = b.Write([]byte("more"))
			require.NoError(t, err)
			n, err := a.Read(buf)
			require.NoError(t, err)
			require.Equal(t, "more", string(buf[:n]))
			_, err = a.Read(buf)
			require.Equal(t, io.EOF, err)
			_, err = a.Write([]byte("still"))
			require.NoError(t, err)
			n, err = b.Read(buf)
			require.NoError(t, err)
			require.Equal(t, "still", string(buf[:n]))
		},
		"close read and close write": func(t *testing.T, a, b *Pair) {
			_, err := b.Write([]byte("before"))
			require.NoError(t, err)
			require.NoError(t, a.CloseRead())
			require.NoError(t, a.CloseWrite())
			_, err = b.Write(nil)
			require.NoError(t, err)
			_, err = b.Write(buf)
			require.NoError(t, err, "it is lost, as over TCP")
			_, err = b.Write(buf)
			require.Equal(t, syscall.EPIPE, err)
			require.ErrorIs(t, b.CloseWrite(), syscall.ENOTCONN)
			n, err := a.Read(buf)
			require.NoError(t, err)
			require.Equal(t, "before", string(buf[:n]))
			_, err = a.Read(buf)
			require.ErrorIs(t, err, syscall.ECONNRESET)
			_, err = a.Read(buf)
			require.Equal(t, io.EOF, err)
			require.ErrorIs(t, a.CloseRead(), syscall.ENOTCONN)
		},
		"waiting after the peer's close read": func(t *testing.T, a, b *Pair) {
			a.CloseRead()
			go func() { time.Sleep(20 * time.Millisecond); a.Write([]byte("late")) }()
			n, err := b.Read(buf)
			require.NoError(t, err)
			require.Equal(t, "late", string(buf[:n]))
		},
		"deadline": func(t *testing.T, a, b *Pair) {
			a.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			_, err := a.Read(buf)
			require.Equal(t, os.ErrDeadlineExceeded, err)
			a.SetReadDeadline(time.Time{})
			b.Write([]byte("x"))
			_, err = a.Read(buf)
			require.NoError(t, err)
			big := make([]byte, 8<<20)
			go func() {
				for a.Stats().WriteParks == 0 {
					time.Sleep(time.Millisecond)
				}
				a.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
			}()
			n, err := a.Write(big)
			require.Equal(t, os.ErrDeadlineExceeded, err)
			require.Positive(t, n)
			_, err = a.Write(nil)
			require.Equal(t, os.ErrDeadlineExceeded, err)
		},
		"past deadline wakes": func(t *testing.T, a, b *Pair) {
			go func() { time.Sleep(20 * time.Millisecond); a.SetReadDeadline(time.Unix(1, 0)) }()
			_, err := a.Read(buf)
			require.Equal(t, os.ErrDeadlineExceeded, err)
		},
		"moved deadline": func(t *testing.T, a, b *Pair) {
			a.SetReadDeadline(time.Now().Add(10 * time.Millisecond))
			a.SetReadDeadline(time.Now().Add(60 * time.Second))
			time.Sleep(30 * time.Millisecond)
			b.Write([]byte("x"))
			_, err := a.Read(buf)
			require.NoError(t, err)
		},
		"zero write sends nothing": func(t *testing.T, a, b *Pair) {
			n, err := a.Write(nil)
			require.NoError(t, err)
			require.Zero(t, n)
			b.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
			_, err = b.Read(buf)
			require.Equal(t, os.ErrDeadlineExceeded, err)
		},
	} {
		for _, o := range []Options{spinning, {}} {
			t.Run(fmt.Sprintf("%s/spin=%v", name, o.Spin), func(t *testing.T) {
				pa, pb := memPools(t, o)
				a, b := connect(t, pa, pb)
				within(t, func() { f(t, a, b) })
			})
		}
	}
}

// When the link goes down, what had arrived is read first. Then comes EOF if the
// FIN had arrived, else a reset.
func TestLinkDown(t *testing.T) {
	for _, fin := range []bool{true, false} {
		da, db := recorder.For(t).Pair(ntbmem.Pair(8 << 20))
		pa, pb := linkPools(t, da, db, spinning)
		a, b := connect(t, pa, pb)
		_, err := a.Write([]byte("published"))
		require.NoError(t, err)
		if fin {
			a.CloseWrite()
		}
		blocked := make(chan error)
		go func() { _, err := b.Write(make([]byte, 8<<20)); blocked <- err }()
		da.Disable()
		within(t, func() {
			<-pb.peer.Done()
			got, err := io.ReadAll(b)
			require.Equal(t, "published", string(got))
			if fin {
				require.NoError(t, err)
			} else {
				require.ErrorIs(t, err, syscall.ECONNRESET)
			}
			require.ErrorIs(t, <-blocked, syscall.ECONNRESET)
			_, err = b.Write([]byte("x"))
			require.ErrorIs(t, err, syscall.ECONNRESET, "each time")
		})
		_, err = pb.NewPair()
		require.ErrorIs(t, err, syscall.ECONNRESET)
	}
}

// A peer that violates the protocol loses that connection and no other.
func TestHostilePeer(t *testing.T) {
	for name, attack := range map[string]func(a *Pair){
		"record":     func(a *Pair) { a.w.tx.win.Publish64(a.w.tx.pos, ^uint64(0)) },
		"credit":     func(a *Pair) { a.control.far.Publish64(offCredit, 1<<32|0xfffff) },
		"grant":      func(a *Pair) { a.control.far.Publish64(offGrant, grantWord(2, 1<<40, 4096)) },
		"big grant":  func(a *Pair) { a.control.far.Publish64(offGrant, 2<<40|63<<32|1000) },
		"low grant":  func(a *Pair) { a.control.far.Publish64(offGrant, grantWord(2, 0, 4096)) },
		"arms":       func(a *Pair) { a.control.far.Publish64(offDataArm, ^uint64(0)) },
		"all of it":  func(a *Pair) { a.control.far.Write(0, bytes.Repeat([]byte{0xff}, controlSize)) },
		"move twice": func(a *Pair) { a.w.tx.publish(makeHeader(a.w.tx.seq+1, 0, kindMove)) },
	} {
		t.Run(name, func(t *testing.T) {
			pa, pb := plainPools(t, Options{Spin: DefaultSpin, Buffer: 4096})
			a, b := connect(t, pa, pb)
			c, d := connect(t, pa, pb)
			attack(a)
			pa.peer.Notify(a.control.farSlot, link.Data)
			pa.peer.Notify(a.control.farSlot, link.Space)
			within(t, func() {
				b.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
				_, rerr := b.Read(make([]byte, 10))
				b.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
				_, werr := b.Write(make([]byte, 1<<20))
				require.Error(t, rerr)
				require.Error(t, werr)
				b.Close()
				_, err := c.Write([]byte("fine"))
				require.NoError(t, err)
				_, err = io.ReadFull(d, make([]byte, 4))
				require.NoError(t, err)
			})
		})
	}
}

func TestConnectRefusesEndsOutsideTheRegion(t *testing.T) {
	pa, _ := memPools(t, spinning)
	c, err := pa.NewPair()
	require.NoError(t, err)
	defer pa.Discard(c)
	good := Endpoint{Slot: 1, Offset: uint64(64*pa.peer.RemoteSlots()+4095) &^ 4095, Size: 4096}
	for name, e := range map[string]Endpoint{
		"slot":                    {Slot: uint32(pa.peer.RemoteSlots()), Offset: good.Offset, Size: good.Size},
		"unaligned":               {Slot: 1, Offset: good.Offset + 64, Size: good.Size},
		"over the control blocks": {Slot: 1, Offset: 0, Size: good.Size},
		"size":                    {Slot: 1, Offset: good.Offset, Size: 5000},
		"size 0":                  {Slot: 1, Offset: good.Offset},
		"large":                   {Slot: 1, Offset: good.Offset, Size: 8 << 20},
		"beyond":                  {Slot: 1, Offset: 8 << 20, Size: 4096},
		"wraps":                   {Slot: 1, Offset: ^uint64(4095), Size: 8192},
	} {
		require.ErrorIs(t, c.Connect(e), ErrBadGrant, name)
	}
	require.NoError(t, c.Connect(good))
}

func TestReadAndWriteDoNotAllocate(t *testing.T) {
	if lock.Checked {
		t.Skip("checked locks allocate")
	}
	pa, pb := plainPools(t, spinning)
	a, b := connect(t, pa, pb)
	for _, size := range []int{64, 8 << 10} {
		p := make([]byte, size)
		n := testing.AllocsPerRun(1000, func() {
			a.Write(p)
			io.ReadFull(b, p)
		})
		require.Zero(t, n, "size %d", size)
	}
}

func BenchmarkPairStream64(b *testing.B)  { benchmarkStream(b, 64) }
func BenchmarkPairStream64K(b *testing.B) { benchmarkStream(b, 64<<10) }

func benchmarkStream(b *testing.B, size int) {
	pa, pb := memPools(b, spinning)
	x, y := connect(b, pa, pb)
	b.SetBytes(int64(size))
	go func() {
		p := make([]byte, size)
		for range b.N {
			x.Write(p)
		}
		x.CloseWrite()
	}()
	io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{y}, make([]byte, 64<<10))
}

// BenchmarkPairPingPong64 sends 64 bytes to and fro, between two goroutines that answer at once.
func BenchmarkPairPingPong64(b *testing.B) {
	pa, pb := plainPools(b, spinning)
	x, y := connect(b, pa, pb)
	go func() {
		p := make([]byte, 64)
		for {
			if _, err := io.ReadFull(y, p); err != nil {
				return
			}
			y.Write(p)
		}
	}()
	p := make([]byte, 64)
	for b.Loop() {
		x.Write(p)
		if _, err := io.ReadFull(x, p); err != nil {
			b.Fatal(err)
		}
	}
}

// dmaPools is memPools with a software engine.
func dmaPools(t testing.TB, o Options, e ntbdma.Options) (pa, pb *Pool) {
	a, b := ntbmem.Pair(16 << 20)
	a, b = recorder.For(t).Pair(ntbdma.Wrap(a, e), ntbdma.Wrap(b, e))
	return linkPools(t, a, b, o)
}

// If everything goes through an engine, even one that fails from time to time, the
// bytes arrive as they do without.
func TestDMACarriesEveryByte(t *testing.T) {
	for _, e := range []ntbdma.Options{{Channels: 1}, {Channels: 2, FailEvery: 3}, {Channels: 1, FailEvery: 1}} {
		t.Run(fmt.Sprintf("%+v", e), func(t *testing.T) {
			pa, pb := dmaPools(t, Options{Spin: DefaultSpin, DMAThreshold: 1}, e)
			a, b := connect(t, pa, pb)
			const n = 3 << 20
			want := make([]byte, n)
			rand.NewChaCha8([32]byte{3}).Read(want)
			within(t, func() {
				var wg sync.WaitGroup
				wg.Go(func() {
					rnd := rand.New(rand.NewPCG(5, 9))
					p := make([]byte, 1<<18)
					for rest := want; len(rest) > 0; {
						k := copy(p[:1+rnd.IntN(1<<(1+rnd.IntN(18)))], rest)
						a.Write(p[:k])
						clear(p[:k]) // Write does not keep the slice
						rest = rest[k:]
					}
					a.Close()
				})
				got, err := io.ReadAll(b)
				require.NoError(t, err)
				require.True(t, bytes.Equal(got, want))
				wg.Wait()
			})
			s := a.Stats()
			require.EqualValues(t, n, s.DMABytes)
			require.Zero(t, s.MMIOBytes+s.InlineBytes)
			require.Positive(t, s.DMACopies)
			require.LessOrEqual(t, s.DMACopies, s.DMARecords)
			require.Equal(t, e.FailEvery > 0, s.DMAErrors > 0)
		})
	}
}

// heldEngine is an engine whose copies wait until they are released.
type heldEngine struct {
	*ntbdma.Device
	gate chan struct{}
}

type heldChannel struct {
	ntb.DMAChannel
	gate chan struct{}
}

func (h heldEngine) DMA(i int) ntb.DMAChannel { return heldChannel{h.Device.DMA(i), h.gate} }

func (h heldChannel) Start(off int, src []byte, done func(error)) bool {
	return h.DMAChannel.Start(off, src, func(err error) { <-h.gate; done(err) })
}

// Write returns before the engine is done. The four rules start what waits, and the
// copies are joined.
func TestDMAStartRules(t *testing.T) {
	da, db := ntbmem.Pair(16 << 20)
	gate := make(chan struct{}, 1000)
	for range 100 { // the measurement at link-up
		gate <- struct{}{}
	}
	pa, pb := linkPools(t, heldEngine{ntbdma.Wrap(da, ntbdma.Options{Channels: 1}), gate}, db, Options{DMAThreshold: 512})
	for len(gate) > 0 {
		<-gate
	}
	a, b := connect(t, pa, pb)
	// The queue first grows, by CPU stores, so that there is room.
	release := func(n int) {
		for range n {
			gate <- struct{}{}
		}
	}
	within(t, func() {
		released := make(chan struct{})
		go func() { defer close(released); time.Sleep(10 * time.Millisecond); release(64) }()
		_, err := a.Write(make([]byte, 100<<10))
		require.NoError(t, err)
		_, err = io.ReadFull(b, make([]byte, 100<<10))
		require.NoError(t, err)
		a.w.tx.dma.drain()
		<-released // also what nothing waited for
		for len(gate) > 0 {
			<-gate
		}
		before := a.Stats()
		big := make([]byte, 20<<10)
		a.Write(big) // the engine is idle: started
		a.Write(big) // waits, to be joined
		a.Write(big)
		s := a.Stats()
		require.Equal(t, before.DMACopies+1, s.DMACopies)
		b.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
		_, err = b.Read(make([]byte, 1))
		require.Equal(t, os.ErrDeadlineExceeded, err, "published before it arrived")
		b.SetReadDeadline(time.Time{})

		a.Write(make([]byte, 1000)) // below the coalescing threshold
		s = a.Stats()
		require.Equal(t, before.DMACopies+2, s.DMACopies, "three records in one copy")

		a.Write(big)
		read := make(chan struct{})
		go func() { defer close(read); a.Read(make([]byte, 1)) }()
		for a.Stats().DMACopies == before.DMACopies+2 {
			time.Sleep(time.Millisecond)
		}
		a.SetReadDeadline(time.Unix(1, 0))
		<-read
		require.Equal(t, before.DMACopies+3, a.Stats().DMACopies, "a Read started it")

		a.Write(big)
		a.CloseWrite()
		require.Equal(t, before.DMACopies+4, a.Stats().DMACopies, "the end started it")
		release(100)
		got, err := io.ReadAll(b)
		require.NoError(t, err)
		require.Len(t, got, 5*len(big)+1000)
	})
}

// Queues that grew go back to their first size when both applications are idle,
// whether they wait in Read or not. Then they grow again.
func TestIdleQueuesShrink(t *testing.T) {
	for _, reading := range []bool{true, false} {
		pa, pb := memPools(t, spinning)
		pa.shrinkEvery, pb.shrinkEvery = 20*time.Millisecond, 20*time.Millisecond
		a, b := connect(t, pa, pb)
		const n = 2 << 20
		used := func(p *Pool) int { p.mu.Lock(); defer p.mu.Unlock(); return p.blocks.used }
		granted := func() uint32 { a.r.granter.mu.Lock(); defer a.r.granter.mu.Unlock(); return a.r.granter.gen }
		for range 3 {
			before := granted()
			within(t, func() {
				var wg sync.WaitGroup
				wg.Go(func() { a.Write(make([]byte, n)) })
				wg.Go(func() { b.Write(make([]byte, n)) })
				wg.Go(func() { io.ReadFull(a, make([]byte, n)) })
				wg.Go(func() { io.ReadFull(b, make([]byte, n)) })
				wg.Wait()
			})
			require.Greater(t, granted(), before, "it grew; it may be small again by now")
			stop := make(chan struct{})
			if reading {
				for _, c := range []*Pair{a, b} {
					go func() { c.Read(make([]byte, 1)); stop <- struct{}{} }()
				}
			}
			require.Eventually(t, func() bool { return used(pa) == minQueue && used(pb) == minQueue },
				60*time.Second, 5*time.Millisecond)
			// The look that finds nothing more to do may be yet to come.
			require.Eventually(t, func() bool { pa.mu.Lock(); defer pa.mu.Unlock(); return !pa.shrinking },
				60*time.Second, time.Millisecond, "no timer when all is small")
			if reading {
				within(t, func() {
					for _, c := range []*Pair{a, b} {
						c.Write([]byte("x"))
						<-stop
					}
				})
			}
		}
	}
}

// A socket takes what fits into its buffers whether or not the peer reads. So a Write of
// that size that waits when the peer ends counts as complete, and the next call gets the
// error.
func TestAWriteUnderWayWhenThePeerEndsIsWhole(t *testing.T) {
	for name, tt := range map[string]struct {
		end  func(*Pair) error
		next error
	}{
		"Close with unread data": {(*Pair).Close, syscall.ECONNRESET},
		"Abort":                  {(*Pair).Abort, syscall.ECONNRESET},
		"Close": {func(b *Pair) error {
			if _, err := io.ReadFull(b, make([]byte, 4096)); err != nil {
				return err
			}
			return b.Close()
		}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			for _, size := range []int{socketRoom, socketRoom + 1} {
				pa, pb := plainPools(t, Options{Buffer: 4096})
				a, b := connect(t, pa, pb)
				type result struct {
					n   int
					err error
				}
				written := make(chan result, 1)
				go func() {
					n, err := a.Write(make([]byte, size))
					written <- result{n, err}
				}()
				within(t, func() {
					_, err := io.ReadFull(b, make([]byte, 1)) // the Write has begun
					require.NoError(t, err)
					require.NoError(t, tt.end(b))
					r := <-written
					if size > socketRoom {
						require.Error(t, r.err)
						require.Less(t, r.n, size)
						return
					}
					require.Equal(t, result{size, nil}, r)
					_, err = a.Write([]byte("x"))
					require.Error(t, err)
					if tt.next != nil {
						require.Equal(t, tt.next, err)
					}
				})
			}
		})
	}
}
