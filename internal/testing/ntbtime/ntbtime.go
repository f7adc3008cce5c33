package ntbtime

import (
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// Link describes a link, the same in both directions.
type Link struct {
	// Rate is how many bytes per second the wire carries, headers included.
	Rate float64
	// Header is how many bytes a packet has besides its payload, and Payload is its largest payload.
	Header, Payload int
	// OneWay is the time from the end of a packet on the wire to its arrival.
	OneWay time.Duration
	// Combining has stores gather in lines of 64 bytes. Without it each 8 bytes are a packet.
	Combining bool
	// Queue is how many bytes may wait for the wire. Stores beyond it wait too.
	Queue int
	// Interrupt is the time from the arrival of a doorbell until its waiter is woken.
	Interrupt time.Duration
	// RemoteCPU is that of ntb.Caps.
	RemoteCPU bool

	// Faults, for tests of tests.
	ExtraPackets int // more packets for each flush
	LoseBell     int // the doorbell with this number, from 1 on, and each that many later is lost; 0 for none
}

// Posted returns the rate of payload by full lines, or without Combining by 8 bytes, in bytes per second.
func (l Link) Posted() float64 {
	unit := 8
	if l.Combining {
		unit = line
	}
	return l.Rate * float64(unit) / float64(unit+l.packets(unit)*l.Header)
}

func (l Link) packets(n int) int { return max(1, (n+l.Payload-1)/l.Payload) }

// Stats counts what one side sent.
type Stats struct {
	Packets, Payload, Wire uint64 // bytes; Wire has the headers too
	Lines                  uint64 // sent full
	Parts                  uint64 // lines that were flushed before they were full
	Words, Doorbells       uint64
	Waited                 time.Duration // by stores, for room in the queue
}

// Device is one end of a bridge.
type Device struct {
	ntb.Device
	link    Link  // immutable
	out, in *wire // immutable; of this side and of the other
}

// Pair gives the two ends of a bridge the times of a link. It owns them.
func Pair(a, b ntb.Device, l Link) (*Device, *Device) {
	ab, ba := newWire(a, l), newWire(b, l)
	return &Device{a, l, ab, ba}, &Device{b, l, ba, ab}
}

// Stats returns what this side has sent since the last Reset.
func (d *Device) Stats() Stats {
	d.out.mu.Lock()
	defer d.out.mu.Unlock()
	return d.out.stats
}

// SetLate has words of 8 bytes below an offset arrive so much later than what this side stored before them.
func (d *Device) SetLate(late time.Duration, below int) {
	d.out.mu.Lock()
	defer d.out.mu.Unlock()
	d.out.late, d.out.lateBelow = late, below
}

// SetAlter has f return the word that arrives instead of one of 8 bytes that this side publishes.
func (d *Device) SetAlter(f func(v uint64) uint64) {
	d.out.mu.Lock()
	defer d.out.mu.Unlock()
	d.out.alter = f
}

// Reset sets the counters to 0.
func (d *Device) Reset() {
	d.out.mu.Lock()
	defer d.out.mu.Unlock()
	d.out.stats = Stats{}
}

// Caps implements ntb.Device.
func (d *Device) Caps() ntb.Caps {
	c := d.Device.Caps()
	c.Coherent, c.FenceToLook, c.SameProcess, c.Reclaims, c.DMAChannels = false, false, false, false, 0
	c.RemoteCPU = d.link.RemoteCPU
	return c
}

// Outbound implements ntb.Device.
func (d *Device) Outbound() ntb.Window {
	n := d.out.window.Len()
	if d.link.Combining {
		return ntb.CombiningWindow(d.out, n)
	}
	return ntb.SinkWindow(d.out, n)
}

// SetPeerSpad implements ntb.Device.
func (d *Device) SetPeerSpad(i int, v uint32) {
	if n := d.Caps().Scratchpads; i < 0 || i >= n {
		d.Device.SetPeerSpad(i, v) // panics
	}
	d.out.register(func() { d.Device.SetPeerSpad(i, v) })
}

// RingDoorbell implements ntb.Device.
func (d *Device) RingDoorbell(bit int) {
	if n := d.Caps().Doorbells; bit < 0 || bit >= n {
		d.Device.RingDoorbell(bit) // panics
	}
	d.out.ring(func() { d.Device.RingDoorbell(bit) })
}

// Order reads across the link. The answer comes behind what the other side had stored by then, as completions push posted writes.
func (d *Device) Order() {
	d.out.Flush()
	d.out.pass(0)
	d.in.pass(8)
	d.Device.Order()
}

// Disable implements ntb.Device. What this side has stored arrives, and what is under way to it vanishes.
func (d *Device) Disable() {
	d.finish()
	d.Device.Disable()
}

// Close implements ntb.Device.
func (d *Device) Close() error {
	d.finish()
	return d.Device.Close()
}

func (d *Device) finish() {
	d.out.Flush()
	d.out.pass(0)
	d.out.end()
	d.in.end()
}
