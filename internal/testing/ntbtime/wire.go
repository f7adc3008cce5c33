package ntbtime

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"slices"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

const (
	line      = 64
	openLines = 10  // write-combining buffers
	piece     = 512 // of a large store that a processor makes before it waits for room
)

// buffer is a write-combining buffer.
type buffer struct {
	at   int    // of the line, in the window
	mask uint64 // of its bytes that were stored
	data [line]byte
}

// arrival is something under way.
type arrival struct {
	due time.Time
	do  func()
}

// wire is one direction of a link. It implements ntb.CombiningSink.
type wire struct {
	link   Link       // immutable
	window ntb.Window // immutable

	mu sync.Mutex // is never held in a wait
	// mu guards the following.
	// The wire is free at this time, and part of a nanosecond later.
	free time.Time
	part float64

	under   []arrival // sorted by due
	timer   *time.Timer
	buffers []buffer // in the order in which they were opened
	ended   bool
	stats   Stats

	late      time.Duration // see Device.SetLate
	lateBelow int
	alter     func(v uint64) uint64 // see Device.SetAlter

	over chan struct{} // closed when ended is set
}

func newWire(dev ntb.Device, l Link) *wire {
	return &wire{link: l, window: dev.Outbound(), over: make(chan struct{})}
}

// send puts packets with n bytes of payload on the wire, and has do be called when they have arrived. The caller holds mu.
func (w *wire) send(n, packets int, do func()) {
	now := time.Now()
	if w.free.Before(now) {
		w.free, w.part = now, 0
	}
	all := n + packets*w.link.Header
	took := float64(all)/w.link.Rate*1e9 + w.part
	whole := time.Duration(took)
	w.free, w.part = w.free.Add(whole), took-float64(whole)
	w.stats.Packets += uint64(packets)
	w.stats.Payload += uint64(n)
	w.stats.Wire += uint64(all)
	w.arrive(w.free.Add(w.link.OneWay), do)
}

// arrive has do be called when it is due. The caller holds mu.
func (w *wire) arrive(due time.Time, do func()) {
	if w.ended || do == nil {
		return
	}
	i := len(w.under)
	for i > 0 && w.under[i-1].due.After(due) {
		i--
	}
	w.under = slices.Insert(w.under, i, arrival{due, do})
	if i > 0 {
		return
	}
	if w.timer == nil {
		w.timer = time.AfterFunc(time.Until(due), w.deliver)
	} else {
		w.timer.Reset(time.Until(due))
	}
}

// deliver is called by the timer.
func (w *wire) deliver() {
	w.mu.Lock()
	defer w.mu.Unlock()
	now, n := time.Now(), 0
	for n < len(w.under) && !w.under[n].due.After(now) {
		w.under[n].do()
		n++
	}
	w.under = slices.Delete(w.under, 0, n)
	if len(w.under) > 0 {
		w.timer.Reset(w.under[0].due.Sub(now))
	}
}

// wait waits, as a processor does, until there is room before the wire.
func (w *wire) wait() {
	w.mu.Lock()
	var d time.Duration
	if now := time.Now(); w.free.After(now) {
		d = max(0, w.free.Sub(now)-time.Duration(float64(w.link.Queue)/w.link.Rate*1e9))
	}
	w.stats.Waited += d
	w.mu.Unlock()
	if d > 0 {
		time.Sleep(d)
	}
}

// pass waits until a packet of n bytes has arrived behind all others, or the link ends.
func (w *wire) pass(n int) {
	arrived := make(chan struct{})
	w.mu.Lock()
	w.send(n, 1, func() { close(arrived) })
	w.mu.Unlock()
	select {
	case <-arrived:
	case <-w.over:
	}
}

// Store implements ntb.Sink.
func (w *wire) Store(off int, p []byte) {
	for len(p) > 0 {
		n, step := 0, w.uncached
		switch {
		case !w.link.Combining:
			n = min(len(p), piece/8)
		case off%line == 0 && len(p) >= line:
			n, step = min(len(p)&^(line-1), piece), w.full
		default:
			n, step = min(len(p), line-off%line), w.combine
		}
		w.mu.Lock()
		step(off, p[:n])
		w.mu.Unlock()
		w.wait()
		off, p = off+n, p[n:]
	}
}

// uncached sends a store in words of 8 bytes. The caller holds mu.
func (w *wire) uncached(off int, p []byte) { w.store(off, p, (len(p)+7)/8) }

// full sends full lines. The caller holds mu.
func (w *wire) full(off int, p []byte) {
	w.stats.Lines += uint64(len(p) / line)
	w.store(off, p, len(p)/line*w.link.packets(line))
}

func (w *wire) store(off int, p []byte, packets int) {
	p = bytes.Clone(p)
	w.send(len(p), packets, func() { w.window.Write(off, p) })
}

// combine stores into a line. The caller holds mu.
func (w *wire) combine(off int, p []byte) {
	at := off &^ (line - 1)
	i := slices.IndexFunc(w.buffers, func(b buffer) bool { return b.at == at })
	if i < 0 {
		if len(w.buffers) == openLines {
			w.empty(0)
		}
		i = len(w.buffers)
		w.buffers = append(w.buffers, buffer{at: at})
	}
	b := &w.buffers[i]
	copy(b.data[off-at:], p)
	b.mask |= (1<<len(p) - 1) << (off - at)
	if ^b.mask == 0 {
		w.empty(i)
	}
}

// empty sends a buffer: a full one as a line, and else each 8 bytes that were stored to as a packet. The caller holds mu.
func (w *wire) empty(i int) {
	b := w.buffers[i]
	w.buffers = slices.Delete(w.buffers, i, i+1)
	if ^b.mask == 0 {
		w.full(b.at, b.data[:])
		return
	}
	w.stats.Parts++
	for k := 0; k < line; k += 8 {
		for m := b.mask >> k & 0xff; m != 0; {
			from := bits.TrailingZeros64(m)
			n := bits.TrailingZeros64(^(m >> from))
			packets := 1
			if m &^= (1<<n - 1) << from; m != 0 {
				packets = 0 // byte enables: one packet for all of the 8 bytes
			}
			w.store(b.at+k+from, b.data[k+from:k+from+n], packets)
		}
	}
}

// Store64 implements ntb.Sink.
func (w *wire) Store64(off int, v uint64) {
	w.Store(off, binary.LittleEndian.AppendUint64(nil, v))
}

// Publish implements ntb.Sink. The window flushes before and after it.
func (w *wire) Publish(off int, v uint64, width int) {
	publish := func() {
		if width == 4 {
			w.window.Publish32(off, uint32(v))
		} else {
			w.window.Publish64(off, v)
		}
	}
	w.mu.Lock()
	w.stats.Words++
	if w.alter != nil && width == 8 {
		v = w.alter(v)
	}
	if width < 8 || off >= w.lateBelow {
		w.send(width, 1, publish)
	} else {
		w.send(width, 1, nil)
		w.arrive(w.free.Add(w.link.OneWay+w.late), publish)
	}
	w.mu.Unlock()
	w.wait()
}

// Update implements ntb.Sink.
func (w *wire) Update(off int, v uint64, width int) { w.Publish(off, v, width) }

// Flush implements ntb.CombiningSink.
func (w *wire) Flush() {
	w.mu.Lock()
	for len(w.buffers) > 0 {
		w.empty(0)
	}
	if n := w.link.ExtraPackets; n > 0 {
		w.send(0, n, nil)
	}
	w.mu.Unlock()
	w.wait()
}

// register stores to a register of the other side.
func (w *wire) register(do func()) {
	w.Flush()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.send(4, 1, do)
}

// ring is register for a doorbell, whose waiter is woken later.
func (w *wire) ring(do func()) {
	w.Flush()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stats.Doorbells++
	if w.link.LoseBell > 0 && w.stats.Doorbells%uint64(w.link.LoseBell) == 0 {
		do = nil
	}
	w.send(4, 1, func() {
		if do != nil {
			time.AfterFunc(w.link.Interrupt, do)
		}
	})
}

// end drops what is under way, once.
func (w *wire) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ended {
		return
	}
	w.ended, w.under = true, nil
	close(w.over)
	if w.timer != nil {
		w.timer.Stop()
	}
}
