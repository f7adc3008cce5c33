package ntbfault

import (
	"encoding/binary"
	"maps"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"

	"github.com/ntbnet/ntbnet/ntb"
)

// Combine returns a device whose outbound window is write-combining memory, as a CPU may at
// worst treat it: stores stay in buffers, leave in any order and at any time, and stay for
// ever unless they are flushed. dropFlush is the probability, 0 to 1, that a flush of the
// window is left out, as by a program without the fence. All choices come from the seed. It
// takes ownership of dev, and unlike [Pair] needs one end only.
func Combine(dev ntb.Device, seed uint64, dropFlush float64) ntb.Device {
	w := dev.Outbound()
	return &combining{Device: dev, buffers: &buffers{
		win: w, dropFlush: dropFlush, lines: map[int]*combined{}, rng: rand.New(rand.NewPCG(seed, 1)),
	}}
}

// combining is a device with write-combining buffers.
type combining struct {
	ntb.Device
	buffers *buffers
}

// Caps implements ntb.Device. The window cannot be filled in place, and what passes by another
// way would overtake the stores in the buffers.
func (d *combining) Caps() ntb.Caps {
	c := d.Device.Caps()
	c.Coherent, c.DMAChannels = false, 0
	return c
}

// Outbound implements ntb.Device.
func (d *combining) Outbound() ntb.Window { return ntb.CombiningWindow(d.buffers, d.buffers.win.Len()) }

// SetPeerSpad implements ntb.Device. The store to a register empties the buffers.
func (d *combining) SetPeerSpad(i int, v uint32) {
	d.buffers.empty()
	d.Device.SetPeerSpad(i, v)
}

// RingDoorbell implements ntb.Device. The store to a register empties the buffers.
func (d *combining) RingDoorbell(bit int) {
	d.buffers.empty()
	d.Device.RingDoorbell(bit)
}

// Order implements ntb.Device.
func (d *combining) Order() {
	d.buffers.empty()
	d.Device.Order()
}

// Disable implements ntb.Device.
func (d *combining) Disable() {
	d.buffers.empty()
	d.Device.Disable()
}

// Close implements ntb.Device.
func (d *combining) Close() error {
	d.buffers.close()
	return d.Device.Close()
}

// maxBuffers is how many lines a CPU gathers at once.
const maxBuffers = 8

// buffers are write-combining buffers. They implement ntb.CombiningSink.
type buffers struct {
	win       ntb.Window // immutable
	dropFlush float64    // immutable

	mu     sync.Mutex        // guards all that follows
	lines  map[int]*combined // by number of the line
	rng    *rand.Rand
	closed bool
}

// combined are stores to one line of 64 bytes.
type combined struct {
	mask uint64 // a bit for each byte that was stored
	data [64]byte
}

// Store implements ntb.Sink.
func (b *buffers) Store(off int, p []byte) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(p) > 0 {
		n := min(len(p), 64-off%64)
		b.put(off, p[:n])
		off, p = off+n, p[n:]
	}
}

// put stores to one line, and may evict one. The caller holds mu.
func (b *buffers) put(off int, p []byte) {
	number, at := off/64, off%64
	l := b.lines[number]
	if l == nil {
		l = &combined{}
		b.lines[number] = l
	}
	copy(l.data[at:], p)
	l.mask |= (1<<len(p) - 1) << at
	if len(b.lines) > maxBuffers || b.rng.IntN(16) == 0 {
		b.evict(b.any())
	}
}

// any returns the number of one of the lines. The caller holds mu.
func (b *buffers) any() int {
	all := slices.Sorted(maps.Keys(b.lines))
	return all[b.rng.IntN(len(all))]
}

// evict makes the stores to a line, words of 8 bytes in any order. Others may run in between. The caller
// holds mu.
func (b *buffers) evict(number int) {
	l := b.lines[number]
	delete(b.lines, number)
	if b.closed {
		return
	}
	for _, word := range b.rng.Perm(8) {
		at := 8 * word
		if l.mask>>at&0xff == 0xff {
			b.win.Publish64(64*number+at, binary.LittleEndian.Uint64(l.data[at:]))
		} else {
			b.half(l, number, at)
			b.half(l, number, at+4)
		}
		if b.rng.IntN(32) == 0 {
			runtime.Gosched()
		}
	}
}

// half makes the stores to 4 bytes of a line, in one piece if they are whole. The caller holds mu.
func (b *buffers) half(l *combined, number, at int) {
	off, mask := 64*number+at, l.mask>>at&0xf
	if mask == 0xf {
		b.win.Publish32(off, binary.LittleEndian.Uint32(l.data[at:]))
		return
	}
	for ; mask != 0; mask &= mask - 1 {
		i := bits.TrailingZeros64(mask)
		b.win.Write(off+i, l.data[at+i:at+i+1])
	}
}

// Store64 implements ntb.Sink.
func (b *buffers) Store64(off int, v uint64) {
	b.Store(off, binary.LittleEndian.AppendUint64(nil, v))
}

// Publish implements ntb.Sink. The word is a store as any other: the window flushes.
func (b *buffers) Publish(off int, v uint64, width int) {
	b.Store(off, binary.LittleEndian.AppendUint64(nil, v)[:width])
}

// Update implements ntb.Sink.
func (b *buffers) Update(off int, v uint64, width int) { b.Publish(off, v, width) }

// Flush implements ntb.CombiningSink.
func (b *buffers) Flush() {
	b.mu.Lock()
	dropped := b.dropFlush > 0 && b.rng.Float64() < b.dropFlush
	b.mu.Unlock()
	if !dropped {
		b.empty()
	}
}

// empty makes all stores, in any order.
func (b *buffers) empty() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for len(b.lines) > 0 {
		b.evict(b.any())
	}
}

func (b *buffers) close() {
	b.empty()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
}
