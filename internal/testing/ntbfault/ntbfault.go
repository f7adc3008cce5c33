package ntbfault

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// Options are the faults to inject. Each kind works alone or with others. The zero
// Options inject none.
type Options struct {
	// Seed determines all random choices. The choices of one direction are a
	// function of the seed and of the sequence of stores and doorbells.
	Seed uint64

	// StoreDelayMin and StoreDelayMax limit the delay of a store, which is chosen
	// evenly between them for each store. A store never arrives before one made
	// earlier. A StoreDelayMax below StoreDelayMin counts as equal to it. If both
	// are 0, stores pass at once.
	StoreDelayMin, StoreDelayMax time.Duration

	// InvalidMax is the longest time for which a side's windows are not set up
	// after the link is up. It is chosen evenly from 0 for each direction. Stores,
	// scratchpads and doorbells that are sent there meanwhile vanish, and that side
	// reads all ones from its scratchpads.
	InvalidMax time.Duration

	// DoorbellDelayMax is the longest time by which a doorbell comes later than the
	// stores before it. It is chosen evenly from 0.
	DoorbellDelayMax time.Duration

	// DropDoorbell is the probability, 0 to 1, that a doorbell is lost.
	DropDoorbell float64

	// RepeatDoorbell is the probability, 0 to 1, that a doorbell that is not
	// lost rings once more, up to DoorbellDelayMax later, or up to 1 ms if that
	// is 0.
	RepeatDoorbell float64

	// QueueBytes limits the delayed stores of each direction. Each store counts
	// with 64 bytes more than its length. A store waits while the queue is full, as
	// it does for credit on a bridge. 0 means 16 MiB.
	QueueBytes int
}

const (
	defaultQueueBytes = 16 << 20
	defaultRepeat     = time.Millisecond
)

// checked fills in what is 0 and panics if a value is out of range.
func (o Options) checked() Options {
	bad := func(p float64) bool { return !(p >= 0 && p <= 1) }
	if o.StoreDelayMin < 0 || o.StoreDelayMax < 0 || o.InvalidMax < 0 || o.DoorbellDelayMax < 0 || o.QueueBytes < 0 ||
		bad(o.DropDoorbell) || bad(o.RepeatDoorbell) {
		panic(fmt.Sprintf("ntbfault: option out of range: %+v", o))
	}
	o.StoreDelayMax = max(o.StoreDelayMin, o.StoreDelayMax)
	if o.QueueBytes == 0 {
		o.QueueBytes = defaultQueueBytes
	}
	return o
}

// delaysStores reports whether stores go through the queue, where some may vanish.
func (o Options) delaysStores() bool { return o.StoreDelayMax > 0 || o.InvalidMax > 0 }

// Stats counts the faults in what one side sent.
type Stats struct {
	StoresDelayed     uint64 // stores that went through the queue, scratchpads included
	StoresVanished    uint64 // stores to a window that was not set up, scratchpads included
	DoorbellsRung     uint64 // calls of RingDoorbell while the link was up
	DoorbellsDropped  uint64 // of DoorbellsRung, lost
	DoorbellsRepeated uint64 // of DoorbellsRung, rung twice
	DoorbellsDelayed  uint64 // of DoorbellsRung, delayed behind the stores before them
	DoorbellsMerged   uint64 // of DoorbellsRung, merged for want of room with an earlier ring of the bit
}

var _ ntb.Device = (*Device)(nil)

// Device is one end of a wrapped bridge.
type Device struct {
	inner   ntb.Device // immutable
	peer    ntb.Device // immutable; the other inner device
	options Options    // immutable
	caps    ntb.Caps   // immutable
	out, in *queue     // immutable; of this side and of the other

	once   sync.Once   // for Close
	err    error       // result of Close; guarded by once
	closed atomic.Bool // Close has begun; stored before the link goes down
}

// Pair wraps the two ends of a bridge. It takes ownership of them: nothing else may
// use them, and closing both results closes them. It panics if an option is out of
// range.
func Pair(a, b ntb.Device, o Options) (*Device, *Device) {
	o = o.checked()
	ab, ba := newQueue(a, o, 1), newQueue(b, o, 2)
	return newDevice(a, b, o, ab, ba), newDevice(b, a, o, ba, ab)
}

func newDevice(inner, peer ntb.Device, o Options, out, in *queue) *Device {
	caps := inner.Caps()
	caps.LossyDoorbells = caps.LossyDoorbells || o.DropDoorbell > 0
	if o.delaysStores() {
		// DMA and Reclaim would overtake the stores in the queue.
		caps.DMAChannels = 0
		caps.Coherent = false
		caps.Reclaims = false
	}
	return &Device{inner: inner, peer: peer, options: o, caps: caps, out: out, in: in}
}

// Caps returns the inner device's properties. LossyDoorbells is added if doorbells
// are dropped. Only it and the numbers of doorbells and scratchpads are left if stores are
// delayed or can vanish.
func (d *Device) Caps() ntb.Caps { return d.caps }

// Inbound implements ntb.Device.
func (d *Device) Inbound() []byte { return d.inner.Inbound() }

// Outbound implements ntb.Device. A store blocks while the queue is full.
func (d *Device) Outbound() ntb.Window {
	w := d.inner.Outbound()
	if !d.options.delaysStores() {
		return w
	}
	return ntb.SinkWindow(ntb.Basic(d.out), w.Len())
}

// Spad implements ntb.Device.
func (d *Device) Spad(i int) uint32 {
	if d.in.invalid() {
		return ^uint32(0)
	}
	return d.inner.Spad(i)
}

// SetPeerSpad implements ntb.Device. It blocks while the queue is full.
func (d *Device) SetPeerSpad(i int, v uint32) {
	if i < 0 || i >= d.caps.Scratchpads {
		panic(fmt.Sprintf("ntbfault: scratchpad %d of %d", i, d.caps.Scratchpads))
	}
	if !d.options.delaysStores() {
		d.inner.SetPeerSpad(i, v)
		return
	}
	d.out.push(entry{kind: spad, off: i, v: uint64(v)})
}

// RingDoorbell implements ntb.Device.
func (d *Device) RingDoorbell(bit int) {
	if bit < 0 || bit >= d.caps.Doorbells {
		panic(fmt.Sprintf("ntbfault: doorbell %d of %d", bit, d.caps.Doorbells))
	}
	d.out.ring(bit)
}

// WaitDoorbell implements ntb.Device.
func (d *Device) WaitDoorbell(bit int) error {
	err := d.inner.WaitDoorbell(bit)
	if err != nil && d.closed.Load() {
		return ntb.ErrClosed // Close takes the link down first
	}
	return err
}

// LinkUp implements ntb.Device.
func (d *Device) LinkUp() bool { return d.inner.LinkUp() }

// Order waits until all stores that this side made before have arrived, and then
// until those have that the peer has made by that time. The second set is
// determined only after the first wait: what the peer stores later, it stores
// having seen ours.
func (d *Device) Order() {
	d.out.drain()
	d.in.drain()
	d.inner.Order()
}

// DMA implements ntb.Device.
func (d *Device) DMA(i int) ntb.DMAChannel {
	if i < 0 || i >= d.caps.DMAChannels {
		panic(fmt.Sprintf("ntbfault: DMA channel %d of %d", i, d.caps.DMAChannels))
	}
	return d.inner.DMA(i)
}

// Reclaim implements ntb.Device.
func (d *Device) Reclaim(off, n int) error {
	if !d.caps.Reclaims {
		return fmt.Errorf("ntbfault: reclaim: %w", ntb.ErrNotSupported)
	}
	return d.inner.Reclaim(off, n)
}

// Stats returns the faults so far in what this side sent.
func (d *Device) Stats() Stats {
	d.out.mu.Lock()
	defer d.out.mu.Unlock()
	return d.out.stats
}

// Cut breaks the cable: what is under way in either direction vanishes, and both
// sides see the link go down. The windows stay until Close. On return nothing
// is stored any more.
func (d *Device) Cut() {
	d.out.cut()
	d.in.cut()
	d.inner.Disable()
	d.peer.Disable()
}

// Disable takes the link down. It first waits until what this side stored before
// has arrived. What the peer has under way vanishes.
func (d *Device) Disable() {
	d.out.finish()
	d.in.cut()
	d.inner.Disable()
}

// Close disables and closes the inner device. What a program stored arrives even if
// it has ended, as a bridge's posted stores do.
func (d *Device) Close() error {
	d.once.Do(func() {
		d.closed.Store(true)
		d.out.finish()
		d.in.cut()
		d.err = d.inner.Close()
	})
	return d.err
}
