package link

import (
	"sync/atomic"

	"github.com/ntbnet/ntbnet/ntb"
)

// bridge is the path over a device.
type bridge struct {
	ntb.Device
	caps      ntb.Caps
	in        []byte
	out       ntb.Window
	arm       uint32        // published last; Park has one caller at a time
	rung      atomic.Uint32 // the peer's arm word that was answered by a doorbell
	doorbells atomic.Uint64
}

// Bridge returns the path over a device, of which it takes ownership.
func Bridge(dev ntb.Device) Path {
	return &bridge{Device: dev, caps: dev.Caps(), in: dev.Inbound(), out: dev.Outbound()}
}

// Wake implements Path. It pairs with Park: either this side sees the arm, or the peer sees the
// master word (pair S4).
func (b *bridge) Wake(v uint32, offsets [2]int) {
	for _, off := range offsets {
		if off != 0 {
			b.out.Publish32(off, v)
		}
	}
	b.out.Publish32(offMaster, v)
	ntb.Fence()
	rung := b.rung.Load()
	if arm := ntb.Load32(b.in, offArm); arm != rung && b.rung.CompareAndSwap(rung, arm) {
		b.doorbells.Add(1)
		b.RingDoorbell(doorbellBit)
	}
}

// Park implements Path (pair S4, with Wake).
func (b *bridge) Park() {
	b.arm++
	b.out.Publish32(offArm, b.arm)
	BeforeLook(b.Device, &b.caps)
}

// Wait implements Path.
func (b *bridge) Wait() error { return b.WaitDoorbell(doorbellBit) }
