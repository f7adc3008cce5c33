package bounce

import (
	"sync"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// dmaTx sends large records of a queue through a DMA engine. Write copies the
// payload into the local bounce buffer, which has the size and the offsets of the
// peer's queue, and returns. The engine moves it. When a copy has arrived, the CPU
// publishes its records' headers.
//
// Copies are started when
//
//  1. there is no room for more in the bounce buffer,
//  2. the application reads,
//  3. it ends the direction or closes,
//  4. the data is below the coalescing threshold, so that nothing waits,
//
// and whenever the engine is idle. What is written while the engine is busy is
// joined, and started when the copy before it is done. So nothing waits for ever.
//
// Records may be published in any order: the header behind each is cleared when its
// room is reserved, in order. The reader stops at the first one that is not
// published.
type dmaTx struct {
	channel   ntb.DMAChannel // immutable
	threshold int            // size from which on payload goes this way; immutable
	bell      *bell          // rung after headers were published; immutable
	done      func(error)    // the method value copied, made once

	mu        lock.Mutex[lock.DMA]
	local     *dmaBuffer        // of the queue in use, nil before the first; guarded by mu
	staged    ringOf[dmaRecord] // not started yet; guarded by mu
	flying    ringOf[dmaRecord] // under way; guarded by mu
	copies    ringOf[int]       // how many records each copy under way has; guarded by mu
	bytes     int               // payload staged; guarded by mu
	idle      sync.Cond         // nothing is staged or under way
	finishing int               // calls of copied that have published and not announced it yet; guarded by mu
	st        dmaStats          // guarded by mu

	waiting atomic.Bool // something is staged; the next Read starts it
}

// dmaBuffer is a local bounce buffer, in memory that the engine can read.
type dmaBuffer struct {
	gen     uint32 // of the queue
	mem     []byte // nil if the engine had no more
	records int    // in it that were not published
	retired bool   // the writer is in another queue, or gone
}

// dmaRecord is a record whose header is not published.
type dmaRecord struct {
	win    ntb.Window // onto the queue
	pos    int        // of the header in it
	header header
	data   []byte // the payload, in the local bounce buffer
	buffer *dmaBuffer
}

const (
	// coalesce is the size below which data is started at once.
	coalesce = 16 << 10
	// maxJoined is how much payload is joined before it is started anyway.
	maxJoined = 256 << 10
)

func newDMA(ch ntb.DMAChannel, threshold int, bell *bell) *dmaTx {
	d := &dmaTx{channel: ch, threshold: threshold, bell: bell}
	d.idle.L = &d.mu
	d.done = d.copied
	return d
}

// stage stages a record. The header behind it is cleared already.
func (d *dmaTx) stage(win ntb.Window, pos, size int, gen uint32, h header, p []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.local == nil || d.local.gen != gen {
		d.retire() // copies under way keep the old buffer
		mem, err := d.channel.Alloc(size)
		if err != nil {
			mem = nil // the CPU stores what goes to this queue
		}
		d.local = &dmaBuffer{gen: gen, mem: mem}
	}
	if d.local.mem == nil {
		d.st.full++
		win.Write(pos+line, p)
		win.Publish64(pos, uint64(h))
		d.bell.announce()
		return
	}
	// Joined records are one copy, headers included. So nothing may appear in their
	// headers' places.
	clear(d.local.mem[pos : pos+headerSize])
	data := d.local.mem[pos+line : pos+line+len(p)]
	copy(data, p)
	d.staged.push(dmaRecord{win, pos, h, data, d.local})
	d.local.records++
	d.bytes += len(p)
	d.st.records++
	d.st.bytes += uint64(len(p))
	d.waiting.Store(true)
	if d.flying.len() == 0 || len(p) < coalesce || d.bytes >= maxJoined {
		d.start()
	}
}

// takes reports whether a record with n bytes of payload goes this way. Without an engine,
// d is nil, and none does.
func (d *dmaTx) takes(n int) bool { return d != nil && n >= d.threshold }

// flush starts what is staged.
func (d *dmaTx) flush() {
	if d == nil || !d.waiting.Load() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.start()
}

// start passes what is staged to the engine, as far as its queue takes it. The
// caller holds mu.
func (d *dmaTx) start() {
	for d.staged.len() > 0 {
		first := d.staged.at(0)
		n, end := 1, first.pos+line+len(first.data)
		for n < d.staged.len() {
			r := d.staged.at(n)
			if r.win.Offset() != first.win.Offset() || r.pos != (end+line-1)&^(line-1) {
				break // another queue, around its end, or another record between
			}
			end = r.pos + line + len(r.data)
			n++
		}
		from := first.pos + line
		src := first.data[: end-from : end-from]
		if !d.channel.Start(first.win.Offset()+from, src, d.done) {
			if d.flying.len() > 0 {
				return // full: copied continues
			}
			d.byCPU(n) // full of copies of others, whose end does not bring us back here
			continue
		}
		d.copies.push(n)
		d.st.copies++
		for range n {
			r := d.staged.pop()
			d.bytes -= len(r.data)
			d.flying.push(r)
		}
	}
	d.waiting.Store(false)
}

// byCPU stores the first n staged records itself. The caller holds mu.
func (d *dmaTx) byCPU(n int) {
	d.st.full++
	for range n {
		r := d.staged.pop()
		d.bytes -= len(r.data)
		r.win.Write(r.pos+line, r.data)
		d.publish(&r)
	}
	d.bell.announce()
}

// publish publishes a record whose payload has arrived. The caller holds mu.
func (d *dmaTx) publish(r *dmaRecord) {
	r.win.Publish64(r.pos, uint64(r.header))
	r.buffer.records--
	d.freeUnused(r.buffer)
}

// retire is called when the writer puts no more records into the buffer in use. The caller
// holds mu.
func (d *dmaTx) retire() {
	if b := d.local; b != nil {
		d.local, b.retired = nil, true
		d.freeUnused(b)
	}
}

// freeUnused frees a buffer that is retired and has no records left. The caller holds mu.
func (d *dmaTx) freeUnused(b *dmaBuffer) {
	if b.retired && b.records == 0 && b.mem != nil {
		d.channel.Free(b.mem)
		b.mem = nil
	}
}

// release is called when the writer is gone. Copies under way keep their buffers.
func (d *dmaTx) release() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.retire()
}

// copied is called by the engine when the oldest copy under way is done.
func (d *dmaTx) copied(err error) {
	d.mu.Lock()
	n := d.copies.pop()
	if err != nil {
		d.st.errors++
	}
	for range n {
		r := d.flying.pop()
		if err != nil {
			// The engine stores nothing more for this copy, so the CPU may.
			r.win.Write(r.pos+line, r.data)
		}
		d.publish(&r)
	}
	d.finishing++
	d.mu.Unlock()
	d.bell.announce()
	d.mu.Lock()
	d.finishing--
	d.start()
	if d.busy() == 0 {
		d.idle.Broadcast()
	}
	d.mu.Unlock()
}

// drain waits until everything has arrived.
func (d *dmaTx) drain() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for d.busy() > 0 {
		d.idle.Wait()
	}
}

// busy returns 0 when nothing is left to do. The caller holds mu.
func (d *dmaTx) busy() int { return d.flying.len() + d.staged.len() + d.finishing }

// ringOf is a queue that keeps its memory.
type ringOf[T any] struct {
	buf  []T // length is a power of two, or 0
	head int
	n    int
}

func (r *ringOf[T]) len() int { return r.n }

func (r *ringOf[T]) at(i int) *T { return &r.buf[(r.head+i)&(len(r.buf)-1)] }

func (r *ringOf[T]) push(v T) {
	if r.n == len(r.buf) {
		buf := make([]T, max(16, 2*r.n))
		for i := range r.n {
			buf[i] = *r.at(i)
		}
		r.buf, r.head = buf, 0
	}
	r.n++
	*r.at(r.n - 1) = v
}

func (r *ringOf[T]) pop() T {
	v := *r.at(0)
	var zero T
	*r.at(0) = zero
	r.head = (r.head + 1) & (len(r.buf) - 1)
	r.n--
	return v
}
