package ring

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/ntbtest"
	"github.com/ntbnet/ntbnet/internal/tunnel"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

func TestDirectPartOfALinkIsABridge(t *testing.T) {
	leak.Check(t)
	o := small(2)
	o.Lanes = 3
	ntbtest.Run(t, func(t *testing.T) (a, b ntb.Device) {
		var ends []ntb.Device
		x, y := ntbmem.Pair(o.LinkWindow(link.MinWindow))
		for i, dev := range []ntb.Device{x, y} {
			n := joined(t, link.MakeID(i+1, 1), o)
			l, err := newLink(n.router, dev, Direction(i))
			require.NoError(t, err)
			l.refs.Store(1)
			n.wg.Add(1)
			ends = append(ends, newSplit(l, o.lanesBytesForTest()))
		}
		return ends[0], ends[1]
	})
}

func (o Options) lanesBytesForTest() int {
	o, _ = o.withDefaults()
	return o.lanesBytes()
}

// dropsOf waits until a node has dropped a frame for a reason.
func dropsOf(t *testing.T, n *Node, why frame.Reason) {
	t.Helper()
	for end := time.Now().Add(60 * time.Second); n.router.drops[why].Load() == 0; time.Sleep(time.Millisecond) {
		require.True(t, time.Now().Before(end), "no frame dropped: %v", why)
	}
}

// single is a source of one frame.
type single struct {
	f    *frame.Header
	body []byte
	sent bool
}

func (s *single) Send(o tunnel.Lane) (n int, more bool) {
	o.Put(s.f, s.body)
	s.sent = true
	return s.f.Size(), false
}

// inject puts a frame in if it may go at once, and reports whether it did.
func (o *outLane) inject(f *frame.Header, body []byte) bool {
	s := &single{f: f, body: body}
	o.Want(s)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.turns.leave(waiter{source: s})
	return s.sent
}

// forge has host 2 of a line of three put a forged frame into its link to 3.
func forge(t *testing.T, f *fabric, fr frame.Header, body []byte) {
	t.Helper()
	fr.Length = uint32(len(body))
	o := f.nodes[1].router.sides[Right].Load().out[0]
	for !o.inject(&fr, body) {
		time.Sleep(time.Millisecond)
	}
}

func TestForgedFramesAreDroppedAndReset(t *testing.T) {
	leak.Check(t)
	o := small(3)
	o.Topology = Line
	f := newFabric(t, o)
	a, b := f.tunnels(t, 1, 3)
	defer a.Close()
	defer b.Close()
	out := a.Outbound()
	out.Publish64(0, 1)
	a.settle()
	require.Equal(t, uint64(1), ntb.Load64(b.Inbound(), 0))
	tb := b
	word := publishes([2]uint64{64, 99})
	good := frame.Header{Kind: frame.Data, Hops: 3, Dst: link.MakeID(3, 1), To: tb.Index, Epoch: tb.Epoch, Seq: tb.Expects()}

	// In its own name, for a tunnel that was not granted to it.
	fr := good
	fr.Src = link.MakeID(2, 1)
	forge(t, f, fr, word)
	dropsOf(t, f.nodes[2], frame.DropForged)
	// In the right name, with another epoch, and for a number that does not exist.
	fr.Src, fr.Epoch = link.MakeID(1, 1), tb.Epoch+1
	forge(t, f, fr, word)
	dropsOf(t, f.nodes[2], frame.DropUnknownTunnel)
	fr.Epoch, fr.To, fr.From = tb.Epoch, 1<<31, 77 // otherwise the tunnel of the source would be reset
	forge(t, f, fr, word)
	for f.nodes[2].router.drops[frame.DropUnknownTunnel].Load() < 2 {
		time.Sleep(time.Millisecond)
	}
	// For a process that does not exist, and with too many hops.
	fr.Dst = link.MakeID(3, 9)
	forge(t, f, fr, word)
	dropsOf(t, f.nodes[2], frame.DropUnknownNode)
	// The link state of a host that does not exist.
	forge(t, f, frame.Header{Kind: frame.LinkState, Src: link.MakeID(77, 1), Seq: 1 << 31}, nil)
	dropsOf(t, f.nodes[2], frame.DropLinkState)

	a.settle()
	require.Zero(t, ntb.Load64(b.Inbound(), 64))
	require.True(t, a.LinkUp() && b.LinkUp())

	// A forwarder can do what the source can, but not beyond the window.
	fr = good
	fr.Src, fr.Seq = link.MakeID(1, 1), tb.Expects()
	word = publishes([2]uint64{uint64(len(b.Inbound())), 99})
	forge(t, f, fr, word)
	dropsOf(t, f.nodes[2], frame.DropBadBody)
	require.ErrorIs(t, b.ended(t), link.ErrProtocol)
	for a.LinkUp() {
		time.Sleep(time.Millisecond)
	}
	require.ErrorIs(t, a.ended(t), ntb.ErrLinkDown)
	// The links are not affected.
	_, err := f.nodes[0].Peer(within(t), link.MakeID(3, 1))
	require.NoError(t, err)
}

func TestAcknowledgementOfWhatWasNotSentEndsTheTunnel(t *testing.T) {
	leak.Check(t)
	o := small(3)
	o.Topology = Line
	f := newFabric(t, o)
	a, b := f.tunnels(t, 1, 3)
	defer a.Close()
	defer b.Close()
	tb := b
	forge(t, f, frame.Header{
		Kind: frame.Ack, Hops: 3, Src: link.MakeID(1, 1), Dst: link.MakeID(3, 1), To: tb.Index, Epoch: tb.Epoch, Ack: 1000,
	}, nil)
	require.ErrorIs(t, b.ended(t), link.ErrProtocol)
}

func TestBadSlotTakesTheLinkDown(t *testing.T) {
	leak.Check(t)
	for text, first := range map[string]uint64{
		"bad frame 0x": 1 | 99<<32 | frame.Version<<40,
		fmt.Sprintf("a frame of version 7, the link has %d", frame.Version): 1 | uint64(frame.Ack)<<32 | 7<<40,
	} {
		o := small(3)
		f := newPlainFabric(t, o)
		l := f.nodes[0].router.sides[Right].Load()
		far := f.nodes[1].router.sides[Left].Load()
		o1 := l.out[0]
		o1.mu.Lock()
		at := int(o1.hop%uint64(o.Slots)) * o1.slotBytes()
		o1.hop++
		o1.queue.Publish64(at, first&^0xffffffff|o1.hop)
		o1.mu.Unlock()
		l.dev.RingDoorbell(0)
		<-far.Done()
		require.ErrorIs(t, far.Err(), link.ErrProtocol)
		require.ErrorContains(t, far.Err(), text)
		<-l.Done()
	}
}

// A neighbour sends random frames. Nothing panics, and other tunnels go on.
func TestRandomFramesDoNoHarm(t *testing.T) {
	leak.Check(t)
	o := small(3)
	f := newFabric(t, o)
	a, b := f.tunnels(t, 1, 3)
	defer a.Close()
	defer b.Close()
	rng := rand.New(rand.NewPCG(5, 6))
	for range 1000 {
		body := make([]byte, 8*rng.IntN(20))
		for i := 0; i+8 <= len(body); i += 8 {
			binary.LittleEndian.PutUint64(body[i:], rng.Uint64()>>rng.IntN(64))
		}
		fr := frame.Header{
			Kind: frame.Kind(1 + rng.IntN(int(frame.LinkState))), Hops: uint16(rng.IntN(5)),
			Src: link.MakeID(rng.IntN(5), rng.IntN(3)), Dst: link.MakeID(rng.IntN(5), rng.IntN(3)),
			To: uint32(rng.IntN(3)), From: uint32(rng.IntN(3)), Epoch: rng.Uint32(), Seq: uint32(rng.IntN(3)),
			Ack: uint32(rng.IntN(3)), States: rng.Uint32(), Arg: uint32(rng.IntN(1000)), Ask: rng.Uint32(),
		}
		if fr.Kind == frame.Open || fr.Kind == frame.LinkState {
			continue // a neighbour may send it
		}
		forge(t, f, fr, body)
	}
	out := a.Outbound()
	out.Publish64(8, 7)
	a.settle()
	require.Equal(t, uint64(7), ntb.Load64(b.Inbound(), 8))
}
