package bounce

import (
	"math/bits"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
)

// grantWord returns the word that tells the peer where to go on: generation of the
// queue in 24 bits, logarithm of its size in 8, and its offset in units of 2 KiB in
// 32.
func grantWord(gen uint32, off, size int) uint64 {
	return uint64(gen)<<40 | uint64(bits.Len(uint(size))-1)<<32 | uint64(off/minQueue)
}

// grow grants the peer a larger queue if its writer waits for room and there is
// memory. The link's goroutine calls it, so that the writer need not wait for our
// application to read.
func (c *Pair) grow() {
	c.gmu.Lock()
	defer c.gmu.Unlock()
	arm := ntb.Load32(c.line, offSpaceArm)
	if arm&growBit == 0 || !armed(arm, c.growAsked) || c.rw.stop.Load()&^(stopDeadline|stopShut) != 0 {
		return
	}
	c.growAsked = arm
	limit := int(c.readBuffer.Load())
	if c.rxSize >= limit || arm>>24 != c.grantGen&0xff {
		return // the largest already, or the writer has not taken the last grant
	}
	size := min(larger(c.rxSize), limit)
	q, ok := c.pool.alloc(size, true)
	for !ok && size/2 > max(c.rxSize, bulkQueue) {
		size /= 2 // perhaps a window of a few MiB has room for that
		q, ok = c.pool.alloc(size, true)
	}
	if ok {
		c.grant(q)
	}
}

// grant makes the peer go on in q. The caller holds gmu, and knows that the peer
// has taken the previous grant, since the word has room for one.
func (c *Pair) grant(q queue) {
	c.grantGen++
	c.rxSize = len(q.mem)
	c.rx.granted.add(q)
	c.far.Publish64(offGrant, grantWord(c.grantGen, q.off, len(q.mem)))
	c.peer.Notify(c.farSlot, ring.Space)
}

// larger returns the size of the queue that follows one of size bytes: 2 KiB, 64
// KiB, 1 MiB, and then the limit.
func larger(size int) int { return max(64<<10, 16*size) }

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

// shrink grants a small queue if the one in use is large and nothing was read since
// the last call. It reports whether to check again: until the peer has moved there.
func (c *Pair) shrink() bool {
	if !c.linked.Load() {
		return false
	}
	c.idleRead() // a move that came when a Read was ending
	c.gmu.Lock()
	defer c.gmu.Unlock()
	if c.rw.stop.Load()&^(stopDeadline|stopShut) != 0 {
		return false
	}
	if !c.rx.granted.none() {
		c.peer.Notify(c.farSlot, ring.Space) // a Write there may have been ending at the first time
		return true
	}
	if c.rxSize <= minQueue {
		return false
	}
	read, known := c.bytesRead()
	idle := known && read == c.readThen
	c.readThen = read
	if !idle {
		return true
	}
	if q, ok := c.pool.alloc(minQueue, false); ok {
		c.grant(q)
	}
	return true
}
