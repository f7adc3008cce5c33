package bounce

import (
	"math/bits"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/internal/lock"
)

// grantWord returns the word that names the next queue to the peer: generation of the
// queue in 24 bits, logarithm of its size in 8, and its offset in units of 2 KiB in
// 32.
func grantWord(gen uint32, off, size int) uint64 {
	return uint64(gen)<<40 | uint64(bits.Len(uint(size))-1)<<32 | uint64(off/minQueue)
}

// queueOf returns the offset and the size of the queue of a grant word.
func queueOf(grant uint64) (off, size uint64) {
	return grant & 0xffffffff * minQueue, 1 << (grant >> 32 & 0x3f)
}

// granter grants the peer the queues that it writes: a larger one while its writer waits
// for room, and a small one again when nothing is read.
type granter struct {
	// Immutable.
	control *control
	stop    *atomic.Uint32 // the reader's reasons to stop
	pool    *Pool          // whose memory the queues are
	granted *grants        // where the reader finds them

	limit  atomic.Int64 // how large a queue may be
	latest atomic.Int64 // size, for Pool.makeRoom; stored under mu

	mu lock.Mutex[lock.Grow]
	// mu guards the following.
	gen      uint32 // generation of the queue granted last
	size     int    // size of the queue granted last
	asked    uint32 // last space arm of the peer that grow has seen
	readThen uint64 // what was read when shrink last checked
}

func (g *granter) init(c *control, stop *atomic.Uint32, pool *Pool, granted *grants, size, limit int) {
	g.control, g.stop, g.pool, g.granted = c, stop, pool, granted
	g.gen, g.size = 1, size
	g.latest.Store(int64(size))
	g.limit.Store(int64(limit))
}

// stopped reports whether nothing is granted any more. The caller holds mu.
func (g *granter) stopped() bool { return g.stop.Load()&^(stopDeadline|stopShut) != 0 }

// grow grants the peer a larger queue if its writer waits for room and there is
// memory. It is called as [link.Notified] is, so that the writer need not wait for our
// application to read.
func (g *granter) grow() {
	if !g.tryGrow() {
		g.pool.makeRoom()
	}
}

// tryGrow is grow where there is memory. It reports false if there is none.
func (g *granter) tryGrow() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	arm := g.control.spaceArm()
	if arm&growBit == 0 || !armed(arm, g.asked) || g.stopped() {
		return true
	}
	g.asked = arm
	limit := int(g.limit.Load())
	if g.size >= limit || arm>>24 != g.gen&0xff {
		return true // the largest already, or the writer has not taken the last grant
	}
	size := min(larger(g.size), limit)
	if usual := g.pool.usual(); usual > g.size {
		size = min(size, usual)
	}
	q, ok := g.pool.alloc(size, g.size)
	for !ok && size/2 > g.size {
		size /= 2 // perhaps a window of a few MiB has room for that
		q, ok = g.pool.alloc(size, g.size)
	}
	if ok {
		g.grant(q)
	}
	return ok
}

// giveWay grants the peer a smaller queue, if the one in use is larger, so that others have room.
func (g *granter) giveWay(size int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped() || !g.granted.none() || g.size <= size {
		return
	}
	if q, ok := g.pool.alloc(size, 0); ok {
		g.grant(q)
	}
}

// grant makes the peer go on in q. The caller holds mu, and knows that the peer
// has taken the previous grant, since the word has room for one.
func (g *granter) grant(q queue) {
	g.gen++
	g.size = len(q.mem)
	g.latest.Store(int64(g.size))
	g.granted.add(q)
	g.control.far.Publish64(offGrant, grantWord(g.gen, q.off, len(q.mem)))
	g.control.notifyWriter()
}

// shrink grants a small queue if the one in use is large and nothing was read since
// the last call. read is how much was read until now, if that is known. It reports
// whether to check again: until the peer has moved there.
func (g *granter) shrink(read uint64, known bool) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.stopped() {
		return false
	}
	if !g.granted.none() {
		g.control.notifyWriter() // a Write there may have been ending at the first time
		return true
	}
	if g.size <= minQueue {
		return false
	}
	idle := known && read == g.readThen
	g.readThen = read
	if !idle {
		return true
	}
	if q, ok := g.pool.alloc(minQueue, 0); ok {
		g.grant(q)
	}
	return true
}

// larger returns the size of the queue that follows one of size bytes: 2 KiB, 64
// KiB, 1 MiB, and then the limit.
func larger(size int) int {
	if size < bulkQueue {
		return min(max(64<<10, 16*size), bulkQueue)
	}
	return 16 * size
}

// A queue of more than bulkQueue is granted only when bulkAfter bytes have gone
// through one of that size, since to touch that much memory for the first time takes
// as long as to copy it several times. It is also granted only while all queues of a
// link take no more than bulkShare. It is faster for an endless stream: it is larger
// than the processors' caches, so that what the writer stores to has left the
// reader's. Over several hops, where credit takes long, it keeps the links busy.
const (
	bulkQueue = 1 << 20
	bulkAfter = 64 << 20
)

// bulkShare returns how much of a window of total bytes may be taken when a queue
// grows beyond bulkQueue: an eighth, or in a small window half, up to 8 MiB.
func bulkShare(total int) int { return max(total/8, min(total/2, 8<<20)) }
