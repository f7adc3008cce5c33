package sdp

import (
	"bytes"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// flaw is something that no device may do. It shows that the bubbles find it.
type flaw int

const (
	flawNone  flaw = iota
	flawOrder      // Order does nothing
	flawBell       // some doorbells are lost, without LossyDoorbells
	flawStore      // some stores are lost
	flawEarly      // some words arrive before the stores that were made before them
)

// cableFaults are what the devices of a bubble do. All of it is allowed to a
// device.
type cableFaults struct {
	late      time.Duration // most by which stores are late; 0 for none
	lateBells time.Duration // most by which doorbells come after the stores before them
	drop      float64       // probability that a doorbell is lost
	repeat    float64       // probability that it rings twice
	flaw      flaw
}

// bubbleCable is a bridge between two nodes. It is late, loses doorbells, can be cut,
// and stands still while a node does. Nothing in it waits: a late store lies in a
// queue, from which a timer takes it. So the caller of a store may hold any lock.
type bubbleCable struct {
	faults cableFaults
	nodes  [2]*bubbleNode
	ends   [2]*bubbleEnd
}

// bubbleEnd is one end of the bridge, an ntb.Device.
type bubbleEnd struct {
	ntb.Device // the device below
	cable      *bubbleCable
	out, in    *bubbleFlow // what this side sends, and what the other side sends
	closed     atomic.Bool
}

func newBubbleCable(f cableFaults, seed uint64, from, to *bubbleNode, a, b ntb.Device) *bubbleCable {
	c := &bubbleCable{faults: f, nodes: [2]*bubbleNode{from, to}}
	ab, ba := newBubbleFlow(c, a, seed+uint64(from.number)), newBubbleFlow(c, b, seed+uint64(to.number))
	c.ends[0] = &bubbleEnd{Device: a, cable: c, out: ab, in: ba}
	c.ends[1] = &bubbleEnd{Device: b, cable: c, out: ba, in: ab}
	return c
}

// still reports whether nothing arrives for now.
func (c *bubbleCable) still() bool { return c.nodes[0].stopped.Load() || c.nodes[1].stopped.Load() }

// cut breaks the cable. What is under way vanishes.
func (c *bubbleCable) cut() {
	for _, e := range c.ends {
		e.out.cut()
	}
	for _, e := range c.ends {
		e.Device.Disable()
	}
}

// goOn is called when a node goes on.
func (c *bubbleCable) goOn() {
	for _, e := range c.ends {
		e.out.fire()
	}
}

func (e *bubbleEnd) Caps() ntb.Caps {
	caps := e.Device.Caps()
	caps.LossyDoorbells = e.cable.faults.drop > 0
	if e.cable.faults.late > 0 {
		caps.Coherent = false
	}
	return caps
}

func (e *bubbleEnd) Outbound() ntb.Window {
	w := e.Device.Outbound()
	if e.cable.faults.late == 0 {
		return w
	}
	return ntb.SinkWindow(ntb.Basic(e.out), w.Len())
}

func (e *bubbleEnd) SetPeerSpad(i int, v uint32) {
	e.out.push(bubbleEntry{kind: entrySpad, off: i, v: uint64(v)})
}

func (e *bubbleEnd) RingDoorbell(bit int) { e.out.push(bubbleEntry{kind: entryBell, off: bit}) }

// Order brings forward everything that was stored. That is early, but allowed.
func (e *bubbleEnd) Order() {
	if e.cable.faults.flaw == flawOrder {
		return
	}
	e.out.drain()
	e.in.drain()
	e.Device.Order()
}

// Disable delivers what this side has stored, and drops what the other side has.
func (e *bubbleEnd) Disable() {
	e.out.drain()
	e.out.cut()
	e.in.cut()
	e.Device.Disable()
}

func (e *bubbleEnd) Close() error {
	e.Disable()
	e.closed.Store(true)
	return e.Device.Close()
}

type bubbleKind uint8

const (
	entryStore bubbleKind = iota
	entryWord
	entrySpad
	entryBell
)

// bubbleEntry is one store or doorbell of a side.
type bubbleEntry struct {
	due   time.Time
	kind  bubbleKind
	width int
	off   int // offset, scratchpad or doorbell bit
	v     uint64
	p     []byte
}

// bubbleFlow is one direction, in order.
type bubbleFlow struct {
	cable *bubbleCable
	dev   ntb.Device // of the side that sends
	win   ntb.Window

	yields atomic.Uint64 // decides when to yield

	mu      sync.Mutex
	rng     *rand.Rand
	entries []bubbleEntry
	last    time.Time   // when the last entry is due
	timer   *time.Timer // calls fire; nil before the first
	dead    bool
	bells   int
}

func newBubbleFlow(c *bubbleCable, dev ntb.Device, seed uint64) *bubbleFlow {
	f := &bubbleFlow{cable: c, dev: dev, win: dev.Outbound(), rng: rand.New(rand.NewPCG(seed, 3))}
	f.yields.Store(f.rng.Uint64())
	return f
}

// Store implements ntb.Sink.
func (f *bubbleFlow) Store(off int, p []byte) {
	if len(p) > 0 {
		f.push(bubbleEntry{kind: entryStore, off: off, p: bytes.Clone(p)})
	}
}

// Publish implements ntb.Sink.
func (f *bubbleFlow) Publish(off int, v uint64, width int) {
	f.push(bubbleEntry{kind: entryWord, off: off, v: v, width: width})
}

func (f *bubbleFlow) push(e bubbleEntry) {
	if f.yields.Add(0x9e3779b97f4a7c15)>>61 == 0 {
		runtime.Gosched() // other goroutines run at places that depend on the seed
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	o := &f.cable.faults
	if f.dead {
		return
	}
	now := time.Now()
	if f.last.Before(now) {
		f.last = now
	}
	if o.late > 0 && f.rng.IntN(4) == 0 {
		// Times have steps, so that what is stored together often arrives together.
		if due := now.Add(time.Duration(f.rng.IntN(8)) * o.late / 8); due.After(f.last) {
			f.last = due
		}
	}
	e.due = f.last
	if e.kind == entryBell {
		f.bells++
		switch {
		case o.flaw == flawBell && f.rng.IntN(100) == 0:
			return
		case o.drop > 0 && f.rng.Float64() < o.drop:
			return
		case o.repeat > 0 && f.rng.Float64() < o.repeat:
			time.AfterFunc(f.after(o.lateBells+time.Millisecond), func() { f.ring(e.off) })
		}
	}
	if o.flaw == flawStore && e.kind == entryStore && f.rng.IntN(500) == 0 {
		return
	}
	if o.flaw == flawEarly && e.kind == entryWord && f.rng.IntN(50) == 0 {
		f.apply(e)
		return
	}
	if len(f.entries) == 0 && !e.due.After(now) && !f.cable.still() {
		f.apply(e)
		return
	}
	f.entries = append(f.entries, e)
	if len(f.entries) == 1 && e.due.After(now) {
		f.schedule(e.due.Sub(now))
	}
}

// after returns a random time up to d. The caller holds mu.
func (f *bubbleFlow) after(d time.Duration) time.Duration {
	return time.Duration(f.rng.Int64N(int64(d) + 1))
}

// schedule schedules a call of fire. The caller holds mu.
func (f *bubbleFlow) schedule(d time.Duration) {
	if f.timer == nil {
		f.timer = time.AfterFunc(d, f.fire)
	} else {
		f.timer.Reset(d)
	}
}

// fire applies what is due.
func (f *bubbleFlow) fire() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.cable.still() {
		return // goOn
	}
	now := time.Now()
	n := 0
	for n < len(f.entries) && !f.entries[n].due.After(now) {
		f.apply(f.entries[n])
		n++
	}
	f.entries = f.entries[n:]
	if len(f.entries) > 0 {
		f.schedule(f.entries[0].due.Sub(now))
	}
}

// drain applies everything now.
func (f *bubbleFlow) drain() {
	f.mu.Lock()
	defer f.mu.Unlock()
	// Doorbells stay, since they would wake a node that may be stopped.
	var bells []bubbleEntry
	for _, e := range f.entries {
		if e.kind == entryBell {
			bells = append(bells, e)
		} else {
			f.apply(e)
		}
	}
	f.entries = bells
}

func (f *bubbleFlow) cut() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dead = true
	f.entries = nil
	if f.timer != nil {
		f.timer.Stop()
	}
}

// apply passes an entry to the device below. The caller holds mu.
func (f *bubbleFlow) apply(e bubbleEntry) {
	switch e.kind {
	case entryStore:
		f.win.Write(e.off, e.p)
	case entryWord:
		if e.width == 4 {
			f.win.Publish32(e.off, uint32(e.v))
		} else {
			f.win.Publish64(e.off, e.v)
		}
	case entrySpad:
		f.dev.SetPeerSpad(e.off, uint32(e.v))
	case entryBell:
		if d := f.cable.faults.lateBells; d > 0 && f.rng.IntN(2) == 0 {
			time.AfterFunc(f.after(d), func() { f.ring(e.off) })
		} else {
			f.dev.RingDoorbell(e.off)
		}
	}
}

// ring rings a delayed doorbell.
func (f *bubbleFlow) ring(bit int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.dead:
	case f.cable.still():
		f.entries = append(f.entries, bubbleEntry{kind: entryBell, off: bit, due: time.Now()})
	default:
		f.dev.RingDoorbell(bit)
	}
}
