package tunnel

import (
	"sync/atomic"
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

// frameFrom returns the next frame of the other end of a tunnel. It acknowledges
// nothing.
func (t *Tunnel) frameFrom(body []byte) *frame.Header {
	return &frame.Header{
		Kind: frame.Data, Src: t.Remote, Dst: t.config.ID, To: t.Index, From: t.far, Epoch: t.Epoch,
		Seq: t.Expects(), Ack: 1, Length: uint32(len(body)),
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

// counted is a service that counts messages.
type counted struct{ messages atomic.Int64 }

func (c *counted) Open(*link.Peer) link.Handler { return c }
func (c *counted) Message([]byte) error         { c.messages.Add(1); return nil }
func (c *counted) Down(error)                   {}

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
	a, _, _ := stuckTunnels(t, func(*Config) {})
	n := link.NewNode(a.config.ID)
	e := &counted{}
	n.Register(link.ServiceSDP, e)
	p, err := n.UpOver(a, a.Remote)
	require.NoError(t, err)
	t.Cleanup(func() { p.Fail(link.ErrClosed); n.Close() })
	const messages = 20_000
	for n := uint64(1); n <= messages; n++ {
		off := setupAt + (n-1)%setupCount*setupBytes
		body := publishes(
			[2]uint64{off + 8, uint64(p.ID()) | uint64(a.config.ID)<<32},
			[2]uint64{off, n | link.ServiceSDP<<48 | 1<<56},
			[2]uint64{0, n | 1<<31}, // the master word
		)
		a.receive(a.frameFrom(body), body)
		for p.Poll(); p.Pending(); p.Poll() {
			time.Sleep(time.Microsecond)
		}
	}
	require.Eventually(t, func() bool { return e.messages.Load() == messages }, 60*time.Second, time.Millisecond)
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Less(t, len(a.late.stores), 1000)
}

// Whatever makes this node store for a peer that acknowledges nothing, it ends.
func TestATunnelEndsWhoseOtherEndAcknowledgesNothing(t *testing.T) {
	leak.Check(t)
	a, _, _ := stuckTunnels(t, func(*Config) {})
	for i := range 2 * maxLate {
		a.Publish(8*(i%100), uint64(i), 8)
	}
	require.False(t, a.LinkUp())
	require.ErrorIs(t, a.Wait(), link.ErrProtocol)
	a.mu.Lock()
	defer a.mu.Unlock()
	require.True(t, a.late.empty())
}
