package tunnel

import (
	"encoding/binary"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

func (t *Tunnel) unsent() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.arq.Unsent()
}

func newTurn() (*link.Turn, chan struct{}) {
	woken := make(chan struct{}, 1)
	return &link.Turn{Wake: func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}}, woken
}

// Frames that a lane does not take are not piled up behind it, since a word that is
// stored later would have to wait for all of them. Data waits for its turn, and words do
// not wait.
func TestDataWaitsForTheLane(t *testing.T) {
	leak.Check(t)
	a, b, goOn := stuckTunnels(t, func(*Config) {})
	first, woken := newTurn()
	second, _ := newTurn()
	const piece = 200 // no two fit in a frame
	at := 64
	for a.Data(at, make([]byte, piece), first) == piece {
		require.LessOrEqual(t, a.unsent(), maxUnsent)
		a.Publish(0, uint64(at), 8)
		at += 256
	}
	require.LessOrEqual(t, a.unsent(), maxUnsent)
	require.Zero(t, a.Data(at, make([]byte, piece), second), "it is another one's turn")
	require.Empty(t, woken)
	for v := range uint64(1000) {
		a.Update(8, v, 8)
	}
	a.Publish(0, 1, 8)
	goOn()
	<-woken
	require.Zero(t, a.Data(at, make([]byte, piece), second), "it is still another one's turn")
	require.NotZero(t, a.Data(at, make([]byte, piece), first))
	a.Arrived(time.Minute)
	require.EqualValues(t, 999, ntb.Load64(b.Inbound(), 8))
	require.EqualValues(t, 1, ntb.Load64(b.Inbound(), 0))
}

// A turn that is first in the queue and leaves lets the next one store.
func TestWhoLeavesTheLineWakesTheNext(t *testing.T) {
	leak.Check(t)
	a, _, goOn := stuckTunnels(t, func(*Config) {})
	first, woken := newTurn()
	second, next := newTurn()
	for a.Data(64, make([]byte, 200), first) > 0 {
		a.Publish(0, 1, 8)
	}
	require.Zero(t, a.Data(64, make([]byte, 200), second))
	goOn()
	<-woken
	require.Empty(t, next)
	a.mu.Lock()
	a.writers.leave(first)
	a.wakeNext()
	a.mu.Unlock()
	<-next
	require.NotZero(t, a.Data(64, make([]byte, 200), second))
}

// Stores that find no room arrive in the order in which they were made. Of a word of which
// only the latest value counts, that value arrives at the place where it was stored.
func TestStoresWithoutRoomKeepTheirOrder(t *testing.T) {
	leak.Check(t)
	a, b, goOn := stuckTunnels(t, func(o *Config) { o.Retention = 4 * o.FrameBytes })
	var order []int
	b.inbound.mu.Lock()
	b.inbound.memory.published = func(off int) { order = append(order, off) }
	b.inbound.mu.Unlock()
	var want []int
	for i := range 100 {
		p := binary.LittleEndian.AppendUint64(nil, uint64(i))
		for range 40 { // more than a frame takes
			p = append(p, p[:8]...)
		}
		a.Store(4096+512*i, p)
		a.Publish(8*i, uint64(i), 8)
		want = append(want, 8*i)
		a.Update(2048, uint64(i), 8) // again and again
		a.Update(2056, uint64(i), 4)
	}
	want = append(want, 2048, 2056)
	a.mu.Lock()
	late := len(a.late.stores)
	a.mu.Unlock()
	require.NotZero(t, late, "this test means that there is no room")
	require.Less(t, late, 300, "older values are dropped")
	done := make(chan struct{})
	go func() { a.Arrived(time.Minute); close(done) }()
	goOn()
	<-done
	for i := range 100 {
		for j := range 41 {
			require.EqualValues(t, i, ntb.Load64(b.Inbound(), 4096+512*i+8*j))
		}
	}
	b.inbound.mu.Lock()
	defer b.inbound.mu.Unlock()
	var words []int
	last := map[int]int{}
	for i, off := range order {
		last[off] = i
	}
	for i, off := range order {
		if last[off] == i {
			words = append(words, off)
		}
	}
	require.Equal(t, want, words)
}

// What has no room when a tunnel is closed arrives before its end.
func TestCloseComesBehindStoresWithoutRoom(t *testing.T) {
	leak.Check(t)
	a, b, goOn := stuckTunnels(t, func(o *Config) { o.Retention = 4 * o.FrameBytes })
	for i := range 100 {
		a.Publish(64*i, uint64(i+1), 8)
		a.Store(8192+512*i, make([]byte, 400))
	}
	a.Disable()
	goOn()
	<-b.Down()
	for i := range 100 {
		require.EqualValues(t, i+1, ntb.Load64(b.Inbound(), 64*i))
	}
}

// Nothing waits for ever in a call that has no limit, since the end of the tunnel
// ends it.
func TestArrivedEndsWithTheTunnel(t *testing.T) {
	leak.Check(t)
	a, _, _ := stuckTunnels(t, func(*Config) {})
	ended := make(chan struct{})
	a.Publish(64, 1, 8)
	go func() { a.Arrived(time.Hour); ended <- struct{}{} }()
	for asked := false; !asked; time.Sleep(time.Millisecond) {
		a.mu.Lock()
		asked = len(a.deliveries) == 1
		a.mu.Unlock()
	}
	w, _ := newTurn()
	a.Disable()
	<-ended
	require.Equal(t, 8, a.Data(0, make([]byte, 8), w), "as with any bridge that is down")
}

// The smallest retention of each frame size takes data, and words beside it.
func TestTheSmallestRetentionTakesData(t *testing.T) {
	leak.Check(t)
	for _, size := range []int{256, 1 << 10, 4 << 10, 66 << 10} {
		a, b, goOn := stuckTunnels(t, func(o *Config) { o.FrameBytes, o.Retention = size, 4*size })
		w, _ := newTurn()
		require.NotZero(t, a.Data(64, make([]byte, 2*size), w), "frames of %d bytes", size)
		a.Publish(0, 1, 8)
		a.mu.Lock()
		require.True(t, a.late.empty())
		a.mu.Unlock()
		goOn()
		a.Arrived(time.Minute)
		require.EqualValues(t, 1, ntb.Load64(b.Inbound(), 0))
	}
}

// If a store of data finds no room, there is none, however much of the last frame is
// left. A writer that waits for a turn must not be woken at once.
func TestNoRoomForAStoreIsNoRoom(t *testing.T) {
	leak.Check(t)
	const size = 1 << 10
	for last := 8; last < size-wordEntry; last += 8 {
		a, _, goOn := stuckTunnels(t, func(o *Config) { o.FrameBytes, o.Retention = size, 1<<20 })
		w, _ := newTurn()
		for a.unsent() < maxUnsent-1 {
			require.NotZero(t, a.Data(64, make([]byte, size-entryHeader-wordEntry), w))
			a.Publish(0, 1, 8) // the frame is full
		}
		require.NotZero(t, a.Data(64, make([]byte, last), w))
		a.Publish(0, 1, 8)
		for a.Data(64, make([]byte, size), w) > 0 {
		}
		a.mu.Lock()
		takes := a.takesData()
		a.mu.Unlock()
		require.False(t, takes, "the last store was of %d bytes", last)
		goOn()
	}
}

// A word that is stored again while it waits comes behind what announced its older value. The
// last word of Wake comes behind both, so whom it wakes finds the latest.
func TestAWakeComesBehindWordsThatWereReplaced(t *testing.T) {
	leak.Check(t)
	a, b, goOn := stuckTunnels(t, func(o *Config) { o.Retention = 4 * o.FrameBytes })
	late := func() int {
		a.mu.Lock()
		defer a.mu.Unlock()
		return len(a.late.stores)
	}
	for late() == 0 {
		a.Publish(256, 1, 8)
	}
	const last = 5
	for v := range uint64(last + 1) {
		a.Update(64, v, 8)
		if v == 0 {
			a.Wake(7, [2]int{128, 0}) // announces the first value
		}
	}
	require.NotZero(t, late())
	goOn()
	require.NoError(t, b.Wait())
	b.inbound.mu.Lock() // the rest of the frame has been stored
	defer b.inbound.mu.Unlock()
	require.EqualValues(t, 7, ntb.Load32(b.Inbound(), 128))
	require.EqualValues(t, last, ntb.Load64(b.Inbound(), 64))
}

// Words that are published in turn arrive in turn, again and again, even where they find no
// room. A reader that sees one sees those before it.
func TestWordsWithoutRoomArriveInTurn(t *testing.T) {
	leak.Check(t)
	a, b, goOn := stuckTunnels(t, func(o *Config) { o.Retention = 4 * o.FrameBytes })
	words := []int{0, 8, 16}
	b.inbound.mu.Lock()
	b.inbound.memory.published = func(off int) {
		for i := range words[1:] {
			before, after := ntb.Load64(b.inbound.memory.in, words[i]), ntb.Load64(b.inbound.memory.in, words[i+1])
			if before < after {
				t.Errorf("word %d is %d, and the one before it %d", i+1, after, before)
			}
		}
		if last, first := ntb.Load64(b.inbound.memory.in, words[2]), ntb.Load64(b.inbound.memory.in, words[0]); first > last+1 {
			t.Errorf("the first word is %d, and the last one %d", first, last)
		}
	}
	b.inbound.mu.Unlock()
	for n := range uint64(200) {
		for _, off := range words {
			a.Publish(off, n+1, 8)
		}
	}
	goOn()
	a.Arrived(time.Minute)
	require.EqualValues(t, 200, ntb.Load64(b.Inbound(), 16))
}

// One that stores much lets the next writer store before it stores the rest.
func TestALargeStoreLetsTheNextWriterStore(t *testing.T) {
	large, _ := newTurn()
	next, woken := newTurn()
	var x *side
	x = newSilent(func(o *Config) { o.FrameBytes = 512 }, func() { // called with the lane's lock and the tunnel's
		if x != nil {
			x.writers.join(next)
		}
	})
	const frameBytes = 512
	p := make([]byte, 4*maxUnsent*frameBytes)
	n := x.Data(64, p, large)
	require.Positive(t, n)
	require.LessOrEqual(t, n, maxUnsent*frameBytes)
	<-woken
	require.Zero(t, x.Data(64+n, p[n:], large), "it is another one's turn")
	require.Positive(t, x.Data(1<<16, p[:8], next))
	x.Drop()
	x.Close()
}
