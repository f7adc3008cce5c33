package bounce

import (
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// grown is a connection of which b has filled a, and a's queue is large.
func grown(t *testing.T) (a, b *Pair, pa, pb *Pool) {
	pa, pb = plainPools(t, Options{})
	pa.shrinkEvery, pb.shrinkEvery = time.Hour, time.Hour // the test checks
	a, b = connect(t, pa, pb)
	within(t, func() {
		const n = 1 << 20
		written := make(chan error)
		go func() { _, err := b.Write(make([]byte, n)); written <- err }()
		_, err := io.ReadFull(a, make([]byte, n))
		require.NoError(t, err)
		require.NoError(t, <-written)
	})
	a.r.granter.mu.Lock()
	defer a.r.granter.mu.Unlock()
	require.Greater(t, a.r.granter.size, minQueue)
	return a, b, pa, pb
}

func shrinking(p *Pool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.shrinking
}

// A writer that was refused a larger queue gets one when it waits again, though nobody reads.
func TestAWriterThatWaitsAgainAsksAgain(t *testing.T) {
	pa, pb := plainPools(t, Options{})
	a, _ := connect(t, pa, pb)
	var held []queue
	for size := bulkQueue; size >= minQueue; size /= 2 {
		for {
			q, ok := pb.alloc(size, 0)
			if !ok {
				break
			}
			held = append(held, q)
		}
	}
	p := make([]byte, 4*minQueue)
	a.SetWriteDeadline(time.Now().Add(20 * time.Millisecond))
	_, err := a.Write(p)
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	for _, q := range held {
		pb.release(q)
	}
	a.SetWriteDeadline(time.Time{})
	within(t, func() {
		_, err = a.Write(p)
		require.NoError(t, err)
	})
}

// A connection that is still being made gives no room: nothing of the peer's can be named in a grant.
func TestAConnectionThatIsNotLinkedGivesNoRoom(t *testing.T) {
	pa, _ := plainPools(t, Options{})
	c, err := pa.NewPair()
	require.NoError(t, err)
	defer pa.Discard(c)
	c.r.granter.latest.Store(int64(pa.blocks.total)) // as the first queue may be large
	c.r.granter.size = pa.blocks.total
	other, err := pa.NewPair()
	require.NoError(t, err)
	defer pa.Discard(other)
	pa.makeRoom()
	require.EqualValues(t, 1, c.r.granter.gen)
}

// While a check finds all queues small, another one grows.
func TestAQueueThatGrowsDuringACheckIsChecked(t *testing.T) {
	pa, pb := plainPools(t, Options{})
	pa.shrinkEvery = time.Hour // the test checks
	a, _ := connect(t, pa, pb)
	growing := func() {
		pa.mu.Lock()
		defer pa.mu.Unlock()
		pa.growing() // as that of another connection does
	}
	growing()
	a.r.granter.mu.Lock()
	checked := make(chan struct{})
	go func() { defer close(checked); pa.shrink() }()
	require.Eventually(t, func() bool { return !shrinking(pa) }, 60*time.Second, time.Millisecond)
	growing()
	a.r.granter.mu.Unlock()
	<-checked
	require.True(t, shrinking(pa), "nobody will check it")
}

// hold locks on a goroutine of its own, as a call that is ending holds its lock, until
// release is called.
func hold(mu sync.Locker) (release func()) {
	held, end, ended := make(chan struct{}), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		mu.Lock()
		close(held)
		<-end
		mu.Unlock()
	}()
	<-held
	return func() { close(end); <-ended }
}

// small checks until the peer was granted a small queue.
func small(t *testing.T, a *Pair) {
	t.Helper()
	require.Eventually(t, func() bool {
		a.pool.shrink()
		a.r.granter.mu.Lock()
		defer a.r.granter.mu.Unlock()
		return a.r.granter.size == minQueue
	}, 60*time.Second, time.Millisecond)
}

// given waits until the large queue was given back, and nothing is checked any more.
func given(t *testing.T, a *Pair) {
	t.Helper()
	require.Eventually(t, func() bool {
		if shrinking(a.pool) {
			a.pool.shrink() // in place of the timer
		}
		a.pool.mu.Lock()
		defer a.pool.mu.Unlock()
		return a.pool.blocks.used == minQueue && !a.pool.shrinking
	}, 60*time.Second, time.Millisecond)
}

// A writer that waits for room again and again gets a larger queue, however short its waits are.
func TestShortWaitsForRoomGetALargerQueue(t *testing.T) {
	pa, pb := plainPools(t, Options{})
	a, b := connect(t, pa, pb)
	b.SetWriteDeadline(time.Now()) // its waits are over at once
	record, read := make([]byte, 256), make([]byte, minQueue)
	for range 2 * askAfter {
		b.w.mu.Lock()
		for n := 1; n > 0; {
			n, _ = b.w.put(record, len(record))
		}
		require.NoError(t, b.w.makeRoom()) // there is none
		b.w.mu.Unlock()
		_, err := a.Read(read)
		require.NoError(t, err)
		b.w.mu.Lock()
		require.NoError(t, b.w.makeRoom())
		b.w.mu.Unlock()
	}
	require.Eventually(t, func() bool { return a.r.granter.latest.Load() > minQueue }, 60*time.Second, time.Millisecond)
}

func handled(t *testing.T, p *Pool) {
	t.Helper()
	require.Eventually(t, func() bool { return !p.Peer().Pending() }, 60*time.Second, time.Millisecond)
}

// The peer is told of the small queue while a Write there is ending, which takes no grant
// any more.
func TestAGrantThatTheEndOfAWriteMissesIsTaken(t *testing.T) {
	a, b, _, pb := grown(t)
	end := hold(&b.w.mu)
	small(t, a)
	handled(t, pb)
	end()
	given(t, a)
}

// The move to the small queue comes while a Read here is ending, which takes none any more.
func TestAMoveThatTheEndOfAReadMissesIsTaken(t *testing.T) {
	a, b, pa, pb := grown(t)
	endWrite := hold(&b.w.mu)
	small(t, a)
	handled(t, pb)
	endRead := hold(&a.r.mu)
	endWrite()
	b.Notified(link.Space) // it moves now
	handled(t, pa)
	endRead()
	given(t, a)
}

// stepped is a device that calls functions around each word of 8 bytes that is published. They are set before the first record,
// or nil.
type stepped struct {
	ntb.Device
	publish func(v uint64) // called before it
	read    func()         // called behind it
}

func (d *stepped) Outbound() ntb.Window {
	w := d.Device.Outbound()
	return ntb.SinkWindow(ntb.Basic(&steppedSink{d, w}), w.Len())
}

type steppedSink struct {
	d   *stepped
	win ntb.Window
}

func (s *steppedSink) Store(off int, p []byte) { s.win.Write(off, p) }

func (s *steppedSink) Publish(off int, v uint64, width int) {
	if width == 4 {
		s.win.Publish32(off, uint32(v))
		return
	}
	if s.d.publish != nil {
		s.d.publish(v)
	}
	s.win.Publish64(off, v)
	if s.d.read != nil {
		read := make(chan struct{})
		go func() { defer close(read); s.d.read() }() // as another process, it holds no lock
		<-read
	}
}

// A stream whose reader is always faster than the stores never waits for room. It gets a larger queue all the same, by
// Writes and by leases.
func TestAStreamThatNeverWaitsGetsALargerQueue(t *testing.T) {
	for name, write := range map[string]func(*Pair, []byte) error{
		"Write": func(b *Pair, p []byte) error { _, err := b.Write(p); return err },
		"Reserve": func(b *Pair, p []byte) error {
			for len(p) > 0 {
				lent, err := b.Reserve(len(p))
				if err != nil {
					return err
				}
				n := copy(lent, p)
				b.Commit(n)
				p = p[n:]
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			x, y := ntbmem.Pair(8 << 20)
			d := &stepped{Device: y}
			pa, pb := linkPools(t, x, d, Options{})
			a, b := connect(t, pa, pb)
			buf := make([]byte, socketRoom)
			d.read = func() {
				a.r.mu.Lock()
				defer a.r.mu.Unlock()
				_, _ = a.r.rx.get(buf)
				a.r.publishCredit()
			}
			within(t, func() {
				for b.Stats().MovesWritten == 0 {
					require.NoError(t, write(b, make([]byte, socketRoom)))
				}
			})
			s := b.Stats()
			require.Zero(t, s.StallsFull+s.StallsLimit+s.StallsSmall, "waits for room")
		})
	}
}
