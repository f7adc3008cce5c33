package ring

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/ntbfault"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// A stream is a sender that fills slots of the other end's window, each with the
// bytes of its round, and a receiver that checks them and gives credit by a word.
const (
	streamWord  = 0  // rounds sent
	streamAck   = 64 // rounds checked
	streamSlots = 8
	streamAt    = 4096
	streamSlot  = 4096
)

// windows is a path or a device.
type windows interface {
	Close() error
	Inbound() []byte
	Outbound() ntb.Window
	LinkUp() bool
}

type stream struct {
	from, to windows
	rounds   uint64
	size     int           // of a round's bytes at the most
	done     atomic.Uint64 // rounds checked
	wrong    atomic.Pointer[string]
	stop     atomic.Bool
}

// payload returns the bytes of a round: a length, and contents that follow from it.
func (s *stream) payload(buf []byte, r uint64) []byte {
	rng := rand.New(rand.NewPCG(r, 7))
	p := buf[:1+rng.IntN(s.size)]
	for i := 0; i < len(p); i += 8 {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], rng.Uint64())
		copy(p[i:], w[:])
	}
	return p
}

// until polls cond without asserting a time, and reports whether it became true.
// The test's own limit ends it.
func (s *stream) until(d windows, cond func() bool) bool {
	for i := 0; !cond(); i++ {
		if s.stop.Load() || !d.LinkUp() {
			return cond()
		}
		if i < 100 {
			runtime.Gosched()
		} else {
			time.Sleep(50 * time.Microsecond)
		}
	}
	return true
}

func (s *stream) send() {
	in, out := s.from.Inbound(), s.from.Outbound()
	buf := make([]byte, streamSlot)
	for r := uint64(1); r <= s.rounds; r++ {
		if !s.until(s.from, func() bool { return ntb.Load64(in, streamAck)+streamSlots >= r }) {
			return
		}
		out.Write(streamAt+int(r%streamSlots)*streamSlot, s.payload(buf, r))
		out.Publish64(streamWord, r)
	}
	s.until(s.from, func() bool { return ntb.Load64(in, streamAck) >= s.rounds })
}

func (s *stream) receive() {
	in, out := s.to.Inbound(), s.to.Outbound()
	buf := make([]byte, streamSlot)
	for next := uint64(1); next <= s.rounds; {
		var have uint64
		if !s.until(s.to, func() bool { have = ntb.Load64(in, streamWord); return have >= next }) {
			return
		}
		for ; next <= have; next++ {
			want := s.payload(buf, next)
			if got := in[streamAt+int(next%streamSlots)*streamSlot:][:len(want)]; string(got) != string(want) {
				text := fmt.Sprintf("round %d: wrong bytes", next)
				s.wrong.Store(&text)
				return
			}
			s.done.Store(next)
		}
		out.Publish64(streamAck, have)
	}
}

func (s *stream) start(wg *sync.WaitGroup) {
	wg.Go(s.send)
	wg.Go(s.receive)
}

func (s *stream) check(t testing.TB) {
	t.Helper()
	if w := s.wrong.Load(); w != nil {
		t.Fatal(*w)
	}
	require.Equal(t, s.rounds, s.done.Load())
}

// once checks that each end has taken exactly once what the other sent.
func once(t testing.TB, a, b *tunnelEnd) {
	t.Helper()
	for _, ends := range [][2]*tunnelEnd{{a, b}, {b, a}} {
		x, y := ends[0], ends[1]
		x.settle()
		sent := x.Stats().Sent
		got := uint64(y.Expects() - 1)
		require.GreaterOrEqual(t, got, sent)
		require.LessOrEqual(t, got, sent+1) // what asks
	}
}

func TestStreamOverHopsArrivesOnceInOrder(t *testing.T) {
	leak.Check(t)
	rounds := uint64(3000)
	if testing.Short() {
		rounds = 300
	}
	for _, hops := range []int{1, 2, 4} {
		o := small(hops + 1)
		o.Topology = Line
		f := newFabric(t, o)
		a, b := f.tunnels(t, 1, hops+1)
		s := &stream{from: a, to: b, rounds: rounds, size: streamSlot}
		back := &stream{from: b, to: a, rounds: rounds, size: 100}
		// The way back is another part of the windows only in one direction, so the
		// two run one after the other.
		var wg sync.WaitGroup
		s.start(&wg)
		wg.Wait()
		s.check(t)
		back.start(&wg)
		wg.Wait()
		once(t, a, b)
		a.Close()
		b.Close()
	}
}

// allToAll has every node send to every other. It returns how many rounds of all
// pairs had arrived when all had, or nothing moved for a minute, or for 2 s without the bubble rule.
func allToAll(t testing.TB, o Options, rounds uint64, size int) (done, want uint64) {
	f := newFabric(t, o)
	var streams []*stream
	for a := 1; a <= o.Hosts; a++ {
		for b := 1; b <= o.Hosts; b++ {
			if a != b {
				x, y := f.tunnels(t, a, b)
				streams = append(streams, &stream{from: x, to: y, rounds: rounds, size: size})
			}
		}
	}
	return f.run(t, streams, func() {})
}

// twoHops has every node send to the one two hops to its right. No node takes a frame from its
// left until all have put as many of their own as they may. It returns what allToAll does.
func twoHops(t testing.TB, o Options, rounds uint64, noBubble bool) (done, want uint64) {
	f := newFabric(t, o)
	if noBubble {
		f.patience = 2 // it is to stop; on a busy machine it may only appear so
		for _, n := range f.nodes {
			n.router.sides[Left].Load().out[0].withoutBubbleRule()
			n.router.sides[Right].Load().out[0].withoutBubbleRule()
		}
	}
	var streams []*stream
	for i := range f.nodes {
		x, y := f.tunnels(t, i+1, (i+2)%o.Hosts+1)
		streams = append(streams, &stream{from: x, to: y, rounds: rounds, size: streamSlot})
	}
	var held sync.WaitGroup
	full := make(chan struct{})
	for _, n := range f.nodes {
		held.Add(1)
		go func() { // a goroutine for each, since nobody holds two locks of a class
			in := n.router.sides[Left].Load().in[0]
			in.mu.Lock()
			defer in.mu.Unlock()
			held.Done()
			<-full
		}()
	}
	held.Wait()
	return f.run(t, streams, func() {
		defer close(full)
		for _, n := range f.nodes {
			o := n.router.sides[Right].Load().out[0]
			require.Eventually(t, func() bool {
				o.mu.Lock()
				defer o.mu.Unlock()
				return o.waits.Load() && o.free() < o.turns.needs
			}, time.Minute, time.Millisecond)
		}
	})
}

// run starts streams, and calls started. It returns what allToAll does.
func (f *fabric) run(t testing.TB, streams []*stream, started func()) (done, want uint64) {
	var wg sync.WaitGroup
	for _, s := range streams {
		s.start(&wg)
	}
	started()
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	sum := func() (n uint64) {
		for _, s := range streams {
			n += s.done.Load()
		}
		return n
	}
	last := sum()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	patience := cmp.Or(f.patience, 60)
	for stuck := 0; stuck < patience; {
		select {
		case <-ended:
			stuck = patience
		case <-tick.C:
			if now := sum(); now == last {
				stuck++
			} else {
				stuck, last = 0, now
			}
		}
	}
	done = sum()
	for _, s := range streams {
		s.stop.Store(true)
		if w := s.wrong.Load(); w != nil {
			t.Error(*w)
		}
		if s.done.Load() == 0 {
			t.Logf("%v to %v: nothing arrived", s.to.(*tunnelEnd).Remote, s.from.(*tunnelEnd).Remote)
		}
	}
	for _, n := range f.nodes {
		for _, t := range n.router.tunnels.all() {
			t.Drop() // including those whose frames are stuck
		}
	}
	<-ended
	for _, s := range streams {
		s.from.Close()
		s.to.Close()
	}
	return done, streams[0].rounds * uint64(len(streams))
}

func TestAllToAllMakesProgress(t *testing.T) {
	leak.Check(t)
	rounds, sizes := uint64(200), []int{3, 5, 8}
	if testing.Short() {
		rounds, sizes = 40, sizes[:2] // under emulation eight on two processors hardly move
	}
	for _, nodes := range sizes {
		for _, lanes := range []int{1, 3} {
			o := small(nodes)
			o.Lanes = lanes
			done, want := allToAll(t, o, rounds, streamSlot)
			require.Equal(t, want, done, "%d nodes, %d lanes", nodes, lanes)
		}
	}
	o := small(5)
	o.NoSpin = true
	done, want := allToAll(t, o, rounds, streamSlot)
	require.Equal(t, want, done, "workers that sleep at once")
}

// Each node fills the lane to its right with frames that go on from there. By the bubble rule one
// slot stays free, and all frames arrive. Without it the ring stops.
func TestAllToAllStopsWithoutTheBubbleRule(t *testing.T) {
	leak.Check(t)
	o := small(5)
	done, want := twoHops(t, o, 40, false)
	require.Equal(t, want, done)
	for try := 1; ; try++ { // a frame of another kind may have been among them
		done, want = twoHops(t, o, 400, true)
		if done < want {
			t.Logf("try %d: stopped after %d of %d", try, done, want)
			return
		}
		require.Less(t, try, 10, "it never stopped")
	}
}

// Stores come late and in any order between two Publish calls. Doorbells come late,
// twice or not at all. Cables are cut and mended.
func TestStreamOverFaultyLinks(t *testing.T) {
	leak.Check(t)
	for seed := uint64(1); seed <= 3; seed++ {
		f := newFaultyFabric(t, small(4), &ntbfault.Options{
			Seed: 100 * seed, StoreDelayMax: 30 * time.Microsecond, DoorbellDelayMax: 100 * time.Microsecond,
			DropDoorbell: 0.001, RepeatDoorbell: 0.05,
		})
		a, b := f.tunnels(t, 1, 3)
		s := &stream{from: a, to: b, rounds: 300, size: streamSlot}
		var wg sync.WaitGroup
		s.start(&wg)
		for i := range 4 {
			for from := s.done.Load(); s.done.Load() < min(from+40, s.rounds); {
				time.Sleep(time.Millisecond)
			}
			f.cut(i)
			f.connect(i)
		}
		wg.Wait()
		s.check(t)
		once(t, a, b)
		a.Close()
		b.Close()
	}
}
