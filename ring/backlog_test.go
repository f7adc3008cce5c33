package ring

import (
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
)

// held returns how many stores wait, including those whose place is not reused yet.
func (b *backlog) held() int { return cap(b.stores) }

// Stores that come and go reuse the memory of earlier ones, although there is always one.
func TestABacklogThatIsNeverEmptyTakesNoMoreMemory(t *testing.T) {
	for name, add := range map[string]func(b *backlog, i int){
		"words":  func(b *backlog, i int) { b.word(entryPublish, 8*i, uint64(i), 8) },
		"latest": func(b *backlog, i int) { b.latest(8*(i%200), uint64(i), 8) },
		"both": func(b *backlog, i int) {
			if b.word(entryPublish, 8, uint64(i), 8); i%3 == 0 {
				b.latest(8*i, uint64(i), 8)
				b.pop()
			}
		},
	} {
		var b backlog
		for i := range 100 {
			add(&b, i)
		}
		for i := 100; i < 100_000; i++ {
			add(&b, i)
			b.pop()
			require.False(t, b.empty())
			for off, at := range b.places {
				if i%1000 == 0 {
					require.Equal(t, off, b.stores[at].off)
				}
			}
		}
		require.Less(t, b.held(), 1000, name)
	}
}

// routedPeers returns a peer over a tunnel in a line of two, and its tunnel. From then on the
// second node takes no frames of the first.
func routedPeers(t *testing.T) (p *link.Peer, a *tunnel) {
	o := small(2)
	o.Topology, o.Failover = Line, true
	f := newPlainFabric(t, o)
	p, err := f.nodes[0].Peer(within(t), link.MakeID(2, 1))
	require.NoError(t, err)
	p.Frames().Arrived(time.Minute)
	a = f.nodes[0].router.routed[link.MakeID(2, 1)].tunnel
	lane := &f.nodes[1].router.sides[Left].Load().in[a.laneIndex()].mu
	// This runs in a goroutine of its own, since the test locks what may not be
	// locked under this lock.
	held, release, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		lane.Lock()
		defer lane.Unlock()
		close(held)
		<-release
	}()
	<-held
	t.Cleanup(func() { close(release); <-done }) // before the fabric ends
	return p, a
}

// expects returns the sequence number that is expected next.
func (t *tunnel) expects() uint32 {
	t.inbound.mu.Lock()
	defer t.inbound.mu.Unlock()
	return t.inbound.recv.Expects()
}

// frameFrom returns the next frame of the other end of a tunnel. It acknowledges
// nothing.
func (t *tunnel) frameFrom(body []byte) *frame.Header {
	return &frame.Header{
		Kind: frame.Data, Src: t.remote, Dst: t.router.node.id, To: t.index, From: t.far.index, Epoch: t.epoch,
		Seq: t.expects(), Ack: 1, Length: uint32(len(body)),
	}
}

// publishes returns the body of a frame that publishes words of 8 bytes, given by
// offset and value.
func publishes(words ...[2]uint64) (body []byte) {
	for _, w := range words {
		b := make([]byte, wordEntry)
		putWord(b, entryWord(entryPublish, int(w[0]), 8))
		putWord(b[entryHeader:], w[1])
		body = append(body, b...)
	}
	return body
}

// Where the set-up queue of a window is.
const (
	setupAt    = 0x1000
	setupBytes = 256
	setupCount = 64
)

// A peer sends set-up messages without end and acknowledges nothing. The credit for them
// does not fill this node's memory.
func TestSetUpCreditThatIsNotAcknowledgedTakesNoMemory(t *testing.T) {
	leak.Check(t)
	p, a := routedPeers(t)
	e := serviceOf(a.router.node)
	const messages = 20_000
	for n := uint64(1); n <= messages; n++ {
		off := setupAt + (n-1)%setupCount*setupBytes
		body := publishes(
			[2]uint64{off + 8, uint64(p.ID()) | uint64(a.router.node.id)<<32},
			[2]uint64{off, n | link.ServiceSDP<<48 | 1<<56},
			[2]uint64{0, n | 1<<31}, // the master word
		)
		a.receive(a.frameFrom(body), body)
		for p.Poll(); p.Pending(); p.Poll() {
			time.Sleep(time.Microsecond)
		}
	}
	e.wait(t, func() bool { return len(e.messages) == messages })
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Less(t, len(a.late.stores), 1000)
}

// Whatever makes this node store for a peer that acknowledges nothing, it ends.
func TestATunnelEndsWhoseOtherEndAcknowledgesNothing(t *testing.T) {
	leak.Check(t)
	a, _, _ := stuckTunnels(t, func(*Options) {})
	for i := range 2 * maxLate {
		a.Publish(8*(i%100), uint64(i), 8)
	}
	require.False(t, a.LinkUp())
	require.ErrorIs(t, a.ended(t), link.ErrProtocol)
	a.mu.Lock()
	defer a.mu.Unlock()
	require.True(t, a.late.empty())
}
