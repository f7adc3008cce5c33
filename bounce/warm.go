package bounce

import (
	"math/bits"
	"time"
)

// Memory of large queues that have ended stays with the link for a while, and so has its pages when the next connections
// take it: making a page, and clearing it, takes longer than filling it. A link's memory is written by one process alone,
// so no peer finds another one's bytes there. Devices that give nothing back to the system have no use for this.

const (
	// chunk is the unit. Smaller queues are not counted here, see Pool.release.
	chunk = bigBlock
	// maxWarm is how many bytes a link keeps.
	maxWarm = 8 << 20
	// coolEvery is how long memory is kept while no queue begins or ends, at least, and twice that at most.
	coolEvery = 5 * time.Second
)

// warm says which chunks of a pool are free and have their pages. The pool's mu guards it.
type warm struct {
	bits  []uint64 // of chunks, by their number from the first block on
	bytes int
	moves uint64 // queues that began or ended
	seen  uint64 // moves when cool last looked
	timer *time.Timer
	runs  bool // timer is set
}

func newWarm(bytes int) warm { return warm{bits: make([]uint64, (bytes/chunk+63)/64)} }

// take has n bytes from off on be in use.
func (w *warm) take(off, n int) {
	w.moves++
	for i := off / chunk; w.bytes > 0 && i*chunk < off+n; i++ {
		if w.bits[i/64]&(1<<(i%64)) != 0 {
			w.bits[i/64] &^= 1 << (i % 64)
			w.bytes -= chunk
		}
	}
}

// put keeps n bytes from off on, which are free, and whole chunks. It reports false if that would be too much.
func (w *warm) put(off, n int) bool {
	w.moves++
	if w.bytes+n > maxWarm {
		return false
	}
	for i := off / chunk; i*chunk < off+n; i++ {
		w.bits[i/64] |= 1 << (i % 64)
	}
	w.bytes += n
	return true
}

// has reports whether all n bytes from off on are kept.
func (w *warm) has(off, n int) bool {
	for i := off / chunk; i*chunk < off+n; i++ {
		if w.bits[i/64]&(1<<(i%64)) == 0 {
			return false
		}
	}
	return true
}

// recent is how large a queue connections of late needed. The pool's mu guards it.
type recent struct {
	size int // the largest that one of the last few did
	less int // how many of them in a row needed less
}

// recentFew is how many connections that need less make size smaller.
const recentFew = 8

// ended counts a connection that had a queue of size bytes, and read n in all.
func (r *recent) ended(size int, n uint64) {
	size = min(size, bulkQueue, 1<<bits.Len64(min(n, bulkQueue)))
	if r.less++; size >= r.size || r.less >= recentFew {
		r.size, r.less = size, 0
	}
}

// usual returns how large a queue connections of late needed.
func (p *Pool) usual() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.recent.size
}

// first allocates the queue with which a connection begins.
func (p *Pool) first() (queue, bool) {
	if q, ok := p.firstWarm(); ok {
		return q, true
	}
	return p.alloc(minQueue, 0)
}

// firstWarm allocates one as large as those before it needed, or less, if there is warm memory for that. It costs no
// more than a small one then, which would take time to grow.
func (p *Pool) firstWarm() (queue, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for size := min(p.recent.size, p.opts.Buffer); size >= chunk && !p.down; size /= 2 {
		if size > p.warm.bytes || !p.mayGrow(size, 0) {
			continue
		}
		off, ok := p.blocks.alloc(size)
		if ok && p.warm.has(off-p.blocks.base, size) {
			p.growing()
			return p.take(off, size), true
		}
		if ok {
			p.blocks.release(off, size)
		}
	}
	return queue{}, false
}

// cooling has cool look after a while. The caller holds p.mu.
func (p *Pool) cooling() {
	if p.warm.runs || p.down || !p.peer.Caps().Reclaims {
		return
	}
	p.warm.runs = true
	if p.warm.timer == nil {
		p.warm.timer = time.AfterFunc(p.coolEvery, p.cool)
	} else {
		p.warm.timer.Reset(p.coolEvery)
	}
}

// cool gives all free memory back to the system if no queue has begun or ended since it last looked.
func (p *Pool) cool() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.warm.runs = false
	if p.down {
		return
	}
	if p.warm.moves != p.warm.seen {
		p.warm.seen = p.warm.moves
		p.cooling()
		return
	}
	for off, order := range p.blocks.state {
		if n := minQueue << order; n >= page {
			p.peer.Reclaim(p.blocks.base+off, n)
		}
	}
	clear(p.warm.bits)
	p.warm.bytes, p.retained = 0, 0
}
