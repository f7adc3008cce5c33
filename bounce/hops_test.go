package bounce

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/recorder"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/ntbnet/ntbnet/ring"
	"github.com/stretchr/testify/require"
)

// hosts is a ring of nodes in this process, with pools.
type hosts struct {
	t     testing.TB
	o     ring.Options
	nodes []*ring.Node
	right []*ring.Link
	rec   *recorder.Recorder
	mute  atomic.Bool // doorbells get lost
}

// mutedDevice is a device of hosts.
type mutedDevice struct {
	ntb.Device
	h *hosts
}

func (d mutedDevice) RingDoorbell(bit int) {
	if !d.h.mute.Load() {
		d.Device.RingDoorbell(bit)
	}
}

func newHosts(t testing.TB, o ring.Options, pool Options) *hosts {
	h := &hosts{t: t, o: o, right: make([]*ring.Link, o.Hosts), rec: recorder.For(t)}
	for host := 1; host <= o.Hosts; host++ {
		ln := link.NewNode(link.MakeID(host, 1))
		ln.Register(link.ServiceSDP, poolService{pool})
		n, err := ring.Join(ln, o)
		require.NoError(t, err)
		h.nodes = append(h.nodes, n)
	}
	for i := range h.nodes {
		if o.Topology != ring.Line || i+1 < o.Hosts {
			h.cable(i)
		}
	}
	t.Cleanup(func() {
		var wg sync.WaitGroup
		for _, n := range h.nodes {
			wg.Go(n.Close)
		}
		wg.Wait()
	})
	return h
}

// cable joins node i with its right neighbour.
func (h *hosts) cable(i int) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	a, b := h.rec.Pair(ntbmem.Pair(h.o.LinkWindow(1 << 20)))
	a, b = mutedDevice{a, h}, mutedDevice{b, h}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := h.nodes[(i+1)%h.o.Hosts].Link(ctx, b, ring.Left); err != nil {
			h.t.Error(err)
		}
	})
	l, err := h.nodes[i].Link(ctx, a, ring.Right)
	require.NoError(h.t, err)
	h.right[i] = l
	wg.Wait()
}

// pools returns the pools of nodes a and b for each other.
func (h *hosts) pools(a, b int) (pa, pb *Pool) {
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	p, err := h.reach(ctx, a, b)
	require.NoError(h.t, err)
	pa = p.Handler(link.ServiceSDP).(poolHandler).Pool
	for ; pb == nil; runtime.Gosched() { // the other end comes up a moment later
		for _, p := range h.nodes[b].Peers() {
			if p.ID() == h.nodes[a].ID() && p.Frames() != nil {
				pb = p.Handler(link.ServiceSDP).(poolHandler).Pool
			}
		}
	}
	recorders.Store(pa, h.rec)
	h.t.Cleanup(func() { pa.closeAll(); pb.closeAll() })
	return pa, pb
}

// reach makes the tunnel from node a to node b as soon as the link state of b has
// come.
func (h *hosts) reach(ctx context.Context, a, b int) (*link.Peer, error) {
	for {
		changed := h.nodes[a].Changed()
		p, err := h.nodes[a].Peer(ctx, h.nodes[b].ID())
		if !errors.Is(err, ring.ErrUnreachable) {
			return p, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func transfer(t *testing.T, from, to *Pair, n int) {
	var wg sync.WaitGroup
	wg.Go(func() {
		src, rnd := rand.NewChaCha8([32]byte{1}), rand.New(rand.NewPCG(1, 9))
		for left := n; left > 0; {
			p := make([]byte, min(left, 1+rnd.IntN(1<<(1+rnd.IntN(17)))))
			src.Read(p)
			if _, err := from.Write(p); err != nil {
				t.Errorf("write: %v", err)
				return
			}
			left -= len(p)
		}
		from.CloseWrite()
	})
	want := make([]byte, n)
	rand.NewChaCha8([32]byte{1}).Read(want)
	got, err := io.ReadAll(to)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes of %d, %v", len(got), n, err)
	}
	wg.Wait()
}

func TestBytesArriveOverHops(t *testing.T) {
	leak.Check(t)
	size := 2 << 20
	if testing.Short() {
		size = 256 << 10
	}
	for _, hops := range []int{2, 4} {
		for _, frame := range []int{512, 66 << 10} {
			h := newHosts(t, ring.Options{Hosts: 2*hops + 1, Slots: 2, FrameBytes: frame}, spinning)
			pa, pb := h.pools(0, hops)
			a, b := connect(t, pa, pb)
			within(t, func() {
				var wg sync.WaitGroup
				wg.Go(func() { transfer(t, a, b, size) })
				wg.Go(func() { transfer(t, b, a, size) })
				wg.Wait()
			})
		}
	}
}

func TestConnectionGoesOnWhenCablesAreCut(t *testing.T) {
	leak.Check(t)
	h := newHosts(t, ring.Options{Hosts: 4, Failover: true}, spinning)
	pa, pb := h.pools(0, 1) // a neighbour
	a, b := connect(t, pa, pb)
	size := 96 << 20
	if testing.Short() {
		size = 32 << 20
	}
	done := make(chan struct{})
	var cuts atomic.Int32
	go func() {
		defer close(done)
		for cuts.Load() < 4 { // mostly once
			transfer(t, a, b, size)
		}
	}()
	for i := 0; ; i++ {
		cuts.Store(int32(i))
		select {
		case <-done:
			t.Logf("%d cuts", i)
			return
		case <-time.After(5 * time.Millisecond):
		}
		h.right[i%4].Close()
		<-h.right[i%4].Done()
		h.cable(i % 4)
	}
}

// The writer announces that it waits while the reader is within a record and owes
// nothing. What the reader reads later is credited although it is little.
func TestReaderWithinRecordGivesCreditLaterOverHops(t *testing.T) {
	leak.Check(t)
	h := newHosts(t, ring.Options{Hosts: 5}, spinning)
	pa, pb := h.pools(0, 2)
	a, b := connect(t, pa, pb)
	const much = 4 << 20
	for range 2 {
		go a.Write(make([]byte, much))
		_, err := io.CopyN(io.Discard, b, much)
		require.NoError(t, err)
		a.SetWriteBuffer(minBuffer) // far less than a quarter of the queue, when the next Write waits
	}
	const messages = 50
	within(t, func() {
		var wg sync.WaitGroup
		wg.Go(func() {
			for range messages {
				if _, err := a.Write(make([]byte, 1000)); err != nil {
					t.Error(err)
				}
			}
		})
		part := make([]byte, 100)
		for range 1000 * messages / len(part) {
			time.Sleep(100 * time.Microsecond) // the writer fills what it may
			if _, err := io.ReadFull(b, part); err != nil {
				t.Error(err)
			}
		}
		wg.Wait()
	})
}

// The window of a tunnel has no room for a queue of 8 MiB.
func TestLongStreamOverHopsGetsWhatFits(t *testing.T) {
	leak.Check(t)
	h := newHosts(t, ring.Options{Hosts: 5}, Options{})
	pa, pb := h.pools(0, 2)
	a, b := connect(t, pa, pb)
	within(t, func() {
		go func() {
			defer a.CloseWrite()
			for range 5 * bulkAfter >> 20 {
				if _, err := a.Write(make([]byte, 1<<20)); err != nil {
					t.Error(err)
				}
			}
		}()
		n, err := io.Copy(io.Discard, b)
		require.NoError(t, err)
		require.Equal(t, int64(5*bulkAfter), n)
	})
	b.r.granter.mu.Lock()
	defer b.r.granter.mu.Unlock()
	require.Equal(t, 4<<20, b.r.granter.size)
	require.Equal(t, uint32(4), b.r.granter.gen) // 2 KiB, 64 KiB, 1 MiB, 4 MiB
}

// A short message is one frame.
func TestShortMessageIsOneFrame(t *testing.T) {
	h := newHosts(t, ring.Options{Hosts: 5}, spinning)
	pa, pb := h.pools(0, 2)
	a, b := connect(t, pa, pb)
	frames := func() uint64 { return h.nodes[0].Tunnels()[0].Sent }
	_, err := a.Write(make([]byte, 100))
	require.NoError(t, err)
	_, err = io.ReadFull(b, make([]byte, 100))
	require.NoError(t, err)
	before := frames()
	for range 10 {
		_, err := a.Write(make([]byte, 100))
		require.NoError(t, err)
	}
	require.LessOrEqual(t, frames()-before, uint64(12)) // except those that wake a sleeper
	require.GreaterOrEqual(t, frames()-before, uint64(1))
}

func BenchmarkPingPongOverHops(b *testing.B) {
	for _, hops := range []int{1, 2, 3, 4} {
		b.Run(fmt.Sprintf("%d", hops), func(b *testing.B) {
			h := newHosts(b, ring.Options{Hosts: 9, Failover: true}, spinning)
			pa, pb := h.pools(0, hops)
			x, y := connect(b, pa, pb)
			go func() {
				buf := make([]byte, 64)
				for {
					if _, err := io.ReadFull(y, buf); err != nil {
						return
					}
					y.Write(buf)
				}
			}()
			buf := make([]byte, 64)
			for b.Loop() {
				x.Write(buf)
				io.ReadFull(x, buf)
			}
		})
	}
}

func BenchmarkStreamOverHops(b *testing.B) {
	for _, hops := range []int{1, 2, 4} {
		b.Run(fmt.Sprintf("%d", hops), func(b *testing.B) {
			h := newHosts(b, ring.Options{Hosts: 9, Failover: true}, spinning)
			pa, pb := h.pools(0, hops)
			x, y := connect(b, pa, pb)
			go io.Copy(io.Discard, y)
			buf := make([]byte, 64<<10)
			b.SetBytes(int64(len(buf)))
			for b.Loop() {
				x.Write(buf)
			}
		})
	}
}

// A reader over hops sleeps and is woken without a word to the writer. So a round trip
// is two frames of data, and few besides.
func TestSleepingOverHopsCostsNoFrames(t *testing.T) {
	leak.Check(t)
	h := newHosts(t, ring.Options{Hosts: 5}, Options{})
	pa, pb := h.pools(0, 2)
	a, b := connect(t, pa, pb)
	sent := func() uint64 { return h.nodes[0].Tunnels()[0].Sent }
	const trips = 200
	ping := func() {
		for _, end := range [][2]*Pair{{a, b}, {b, a}} {
			read := make(chan error, 1)
			go func() {
				_, err := io.ReadFull(end[1], make([]byte, 64))
				read <- err
			}()
			_, err := end[0].Write(make([]byte, 64))
			require.NoError(t, err)
			require.NoError(t, <-read)
		}
	}
	ping()
	before := sent()
	for range trips {
		ping()
	}
	require.LessOrEqual(t, sent()-before, uint64(trips*5/4)) // credit after each quarter of a queue
}

// What a Read polls takes the frames itself. No doorbell has to wake another goroutine.
func TestAReadTakesFramesWithoutADoorbell(t *testing.T) {
	leak.Check(t)
	h := newHosts(t, ring.Options{Hosts: 2, Topology: ring.Line, Failover: true}, Options{})
	pa, pb := h.pools(0, 1)
	a, b := connect(t, pa, pb)
	buf := make([]byte, 64)
	for range 3 { // the lane of what comes is known
		_, err := a.Write(buf)
		require.NoError(t, err)
		_, err = io.ReadFull(b, buf)
		require.NoError(t, err)
	}
	h.mute.Store(true)
	defer h.mute.Store(false)
	for range 10 { // as many as need no credit
		_, err := a.Write(buf)
		require.NoError(t, err)
		within(t, func() {
			for !b.r.waiter.source.Ready() {
				runtime.Gosched()
			}
		})
		_, err = io.ReadFull(b, buf)
		require.NoError(t, err)
	}
}
