package bounce

import (
	"io"
	"math/bits"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// reclaiming is a device that notes what it is to give back to the system.
type reclaiming struct {
	ntb.Device
	mu     sync.Mutex
	ranges [][2]int // in the window, from and to; guarded by mu
}

func (r *reclaiming) Caps() ntb.Caps {
	c := r.Device.Caps()
	c.Reclaims = true
	return c
}

func (r *reclaiming) Reclaim(off, n int) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ranges = append(r.ranges, [2]int{off, off + n})
	return nil
}

// taken returns what was given back since it was called last.
func (r *reclaiming) taken() [][2]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.ranges
	r.ranges = nil
	return all
}

func warmPool(t *testing.T, coolEvery time.Duration) (*Pool, *reclaiming) {
	t.Helper()
	a, b := ntbmem.Pair(64 << 20)
	dev := &reclaiming{Device: a}
	pa, _ := linkPools(t, dev, b, Options{})
	pa.coolEvery = coolEvery
	return pa, dev
}

// Queues of any size come and go. What is kept is free and has a bound, and nothing that is in use is given back.
func TestWarmMemoryIsFreeAndBounded(t *testing.T) {
	leak.Check(t)
	p, dev := warmPool(t, time.Hour)
	rng := rand.New(rand.NewPCG(1, 2))
	base := len(p.peer.Local()) // of offsets, from the end of the window
	window := len(dev.Inbound())
	var queues []queue
	kept, large := 0, 0
	for range 20_000 {
		if len(queues) == 0 || rng.IntN(2) == 0 {
			if q, ok := p.alloc(minQueue<<rng.IntN(12), 0); ok {
				queues = append(queues, q)
			}
		} else {
			i := rng.IntN(len(queues))
			q := queues[i]
			queues[i] = queues[len(queues)-1]
			queues = queues[:len(queues)-1]
			p.release(q)
			if len(q.mem) >= bigBlock {
				if large++; len(dev.ranges) == 0 {
					kept++
				}
			}
		}
		for _, r := range dev.taken() {
			for _, q := range queues {
				from := window - base + q.off
				require.False(t, r[0] < from+len(q.mem) && from < r[1], "%d bytes at %d are in use", len(q.mem), q.off)
			}
		}
		n := 0
		for _, w := range p.warm.bits {
			n += bits.OnesCount64(w)
		}
		require.Equal(t, n*chunk, p.warm.bytes)
		require.LessOrEqual(t, p.warm.bytes, maxWarm)
	}
	for _, q := range queues {
		for i := range len(q.mem) / chunk {
			at := (q.off-p.blocks.base)/chunk + i
			require.Zero(t, p.warm.bits[at/64]&(1<<(at%64)), "it is in use")
		}
		p.release(q)
	}
	require.Greater(t, kept, large/10)
	require.Less(t, kept, large)
}

// What is kept goes back when no queue has begun or ended for a while, and not before.
func TestWarmMemoryGoesBack(t *testing.T) {
	leak.Check(t)
	p, dev := warmPool(t, 10*time.Millisecond)
	q, ok := p.alloc(1<<20, 0)
	require.True(t, ok)
	p.release(q)
	again, ok := p.alloc(1<<20, 0)
	require.True(t, ok)
	require.Equal(t, q.off, again.off, "the next queue is there")
	small, ok := p.alloc(minQueue, 0)
	require.True(t, ok)
	p.release(again)
	from := len(dev.Inbound()) - len(p.peer.Local())
	var back [][2]int
	require.Eventually(t, func() bool {
		back = append(back, dev.taken()...)
		for at := from + q.off; at < from+q.off+len(q.mem); at += page {
			found := false
			for _, r := range back {
				found = found || r[0] <= at && at+page <= r[1]
			}
			if !found {
				return false
			}
		}
		return true
	}, time.Minute, time.Millisecond)
	for _, r := range back {
		require.False(t, r[0] < from+small.off+minQueue && from+small.off < r[1], "a queue in use")
	}
	p.mu.Lock()
	require.Zero(t, p.warm.bytes)
	p.mu.Unlock()
	p.release(small)
}

// converse makes a connection, over which one side sends messages of size bytes, each of which the other sends back.
func converse(t *testing.T, pa, pb *Pool, size int) (a, b Stats) {
	t.Helper()
	ca, cb := connect(t, pa, pb)
	done := make(chan struct{})
	go func() {
		defer close(done)
		buf := make([]byte, size)
		for range 4 {
			_, err := io.ReadFull(cb, buf)
			assert.NoError(t, err)
			_, err = cb.Write(buf)
			assert.NoError(t, err)
		}
	}()
	buf := make([]byte, size)
	for range 4 {
		_, err := ca.Write(buf)
		require.NoError(t, err)
		_, err = io.ReadFull(ca, buf)
		require.NoError(t, err)
	}
	<-done
	a, b = ca.Stats(), cb.Stats()
	require.NoError(t, ca.Close())
	require.NoError(t, cb.Close())
	require.Eventually(t, func() bool { return pa.Used().Pairs+pb.Used().Pairs == 0 }, time.Minute, time.Millisecond)
	return a, b
}

// A connection begins with a queue as large as those before it needed: it asks for no other one, and waits for none.
func TestConnectionsBeginAsOthersEnded(t *testing.T) {
	leak.Check(t)
	pa, pb := memPools(t, Options{})
	const large, small = 200 << 10, 1 << 10
	a, b := converse(t, pa, pb, large)
	require.NotZero(t, a.MovesWritten)
	require.NotZero(t, b.MovesWritten)
	used := pa.blocks.used
	for range 3 {
		a, b = converse(t, pa, pb, large)
		a.Add(b)
		require.Zero(t, a.MovesWritten)
		require.Zero(t, a.StallsSmall)
	}
	require.Equal(t, bulkQueue, pa.recent.size)
	for range recentFew + 1 {
		converse(t, pa, pb, small)
	}
	require.Less(t, pa.recent.size, chunk, "connections that need little begin with little")
	require.Equal(t, used, pa.blocks.used)
}

// Many connections at once begin with large queues while there is warm memory, and the others with small ones.
func TestWarmMemoryIsForAll(t *testing.T) {
	leak.Check(t)
	pa, pb := memPools(t, Options{})
	converse(t, pa, pb, 200<<10)
	var all []*Pair
	large := 0
	for range 20 {
		a, b := connect(t, pa, pb)
		all = append(all, a, b)
		if len(a.r.rx.mem) >= chunk {
			large++
		}
	}
	require.NotZero(t, large)
	require.LessOrEqual(t, pa.blocks.used, maxWarm+20*minQueue)
	for _, c := range all {
		require.NoError(t, c.Close())
	}
}
