package ntbtest

import (
	"errors"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/ntb"
)

// checkDown requires that d's link is down, now and ever after. want is what
// WaitDoorbell must return.
func (e *env) checkDown(d ntb.Device, want error) {
	e.Helper()
	for range 3 {
		if d.LinkUp() {
			e.Error("LinkUp is true")
		}
		if !allSpads(d, ^uint32(0)) {
			e.Error("a scratchpad is not all ones")
		}
		e.mustReturn("WaitDoorbell with the link down", func() {
			for bit := range d.Caps().Doorbells {
				if err := d.WaitDoorbell(bit); !errors.Is(err, want) {
					e.Errorf("WaitDoorbell(%d) returned %v, want %v", bit, err, want)
				}
			}
		})
	}
}

// useAll calls all methods that need the link, except those of windows.
func useAll(d ntb.Device) {
	c := d.Caps()
	for i := range c.Scratchpads {
		d.SetPeerSpad(i, 7)
		d.Spad(i)
	}
	for bit := range c.Doorbells {
		d.RingDoorbell(bit)
	}
	d.LinkUp()
	d.Order()
}

func closeSeenByPeer(e *env) {
	caps := e.a.Caps()
	all := e.waiters(e.a)
	for bit := range all { // pending doorbells may not hide that the link is down
		e.b.RingDoorbell(bit)
	}
	if err := e.b.Close(); err != nil {
		e.Errorf("Close: %v", err)
	}
	for bit, w := range all {
		e.ended(w, bit, ntb.ErrLinkDown)
	}
	e.must("link down", func() bool { return !e.a.LinkUp() })
	e.checkDown(e.a, ntb.ErrLinkDown)

	out := e.a.Outbound()
	out.Publish64(0, 1)
	out.Publish32(8, 1)
	out.Write(16, make([]byte, 100))
	e.mustReturn("what needs the link", func() { useAll(e.a) })
	e.checkDown(e.a, ntb.ErrLinkDown)
	if now := e.a.Caps(); now != caps {
		e.Errorf("Caps changed from %+v to %+v", caps, now)
	}
}

// closeAfterStores also rings, without a waiter. The pending doorbell may not hide
// that the link is down.
func closeAfterStores(e *env) {
	out, in := e.b.Outbound(), e.a.Inbound()
	var buf [slotTail]byte
	p := fill(&buf, 123)
	out.Write(slotsAt, p)
	out.Publish64(firstWord, 123)
	for bit := range e.a.Caps().Doorbells {
		e.b.RingDoorbell(bit)
	}
	e.b.Close()
	e.must("link down", func() bool { return !e.a.LinkUp() })
	e.checkDown(e.a, ntb.ErrLinkDown)
	if got := ntb.Load64(in, firstWord); got != 123 {
		e.Fatalf("word stored before Close is %d when the link is down, want 123", got)
	}
	if got := in[slotsAt:][:len(p)]; string(got) != string(p) {
		e.Errorf("payload stored before Close is % x, want % x", got, p)
	}
}

func closeOwn(e *env) {
	all := e.waiters(e.a)
	for range 2 {
		e.mustReturn("Close", func() {
			if err := e.a.Close(); err != nil {
				e.Errorf("Close: %v", err)
			}
		})
		for bit, w := range all {
			e.ended(w, bit, ntb.ErrClosed)
		}
		for range 10 { // a device that chooses among reasons must choose this one
			e.checkDown(e.a, ntb.ErrClosed)
		}
		e.mustReturn("what needs the link", func() { useAll(e.a) })
	}
	e.must("peer sees it", func() bool { return !e.b.LinkUp() })
	e.checkDown(e.b, ntb.ErrLinkDown)
}

func closeBothSides(e *env) {
	for range 20 {
		a, b := e.pair(e.T)
		outA, outB := a.Outbound(), b.Outbound()
		for r := uint64(1); r <= 10; r++ {
			outA.Publish64(0, r)
			outB.Publish64(0, r)
			a.RingDoorbell(0)
			b.RingDoorbell(0)
		}
		for _, d := range []ntb.Device{a, b} {
			for range 2 { // and by two goroutines on each side
				e.start(func() {
					if err := d.Close(); err != nil {
						e.Errorf("Close: %v", err)
					}
				})
			}
		}
		e.wait("Close returns")
		e.checkDown(a, ntb.ErrClosed)
		e.checkDown(b, ntb.ErrClosed)
	}
}

// closeBesideCalls closes a side while other goroutines call methods that need no
// window.
func closeBesideCalls(e *env) {
	all := e.waiters(e.a)
	var calls, after atomic.Int64
	var closed atomic.Bool
	for range 3 {
		e.start(func() {
			for after.Load() < 20 && !e.stop.Load() {
				useAll(e.a)
				calls.Add(1)
				if closed.Load() {
					after.Add(1)
				}
			}
		})
	}
	e.must("calls are made", func() bool { return calls.Load() > 20 })
	e.mustReturn("Close", func() { e.a.Close() })
	closed.Store(true)
	for bit, w := range all {
		e.ended(w, bit, ntb.ErrClosed)
	}
	e.wait("calls return")
}

func closeAfterDown(e *env) {
	e.b.Close()
	e.must("link down", func() bool { return !e.a.LinkUp() })
	e.mustReturn("Close", func() {
		if err := e.a.Close(); err != nil {
			e.Errorf("Close: %v", err)
		}
	})
	e.checkDown(e.a, ntb.ErrClosed)
	e.checkDown(e.b, ntb.ErrClosed)
}

func disable(e *env) {
	in, out := e.b.Inbound(), e.a.Outbound()
	out.Publish64(firstWord, 5)
	e.must("word published", func() bool { return ntb.Load64(in, firstWord) == 5 })

	ours, theirs := e.waiters(e.a), e.waiters(e.b)
	for range 2 {
		e.mustReturn("Disable", e.a.Disable)
	}
	for bit := range ours {
		e.ended(ours[bit], bit, ntb.ErrLinkDown)
	}
	for bit := range theirs {
		e.ended(theirs[bit], bit, ntb.ErrLinkDown)
	}
	e.must("peer sees it", func() bool { return !e.b.LinkUp() })
	e.checkDown(e.a, ntb.ErrLinkDown)
	e.checkDown(e.b, ntb.ErrLinkDown)

	if got := ntb.Load64(in, firstWord); got != 5 {
		e.Errorf("word stored before Disable is %d, want 5", got)
	}
	if len(e.a.Inbound()) == 0 || e.a.Inbound()[secondWord] != 0 {
		e.Error("own window is not readable after Disable")
	}
	out.Publish64(secondWord, 1)
	out.Write(slotsAt, make([]byte, 100))
	e.mustReturn("what needs the link", func() { useAll(e.a) })
	e.mustReturn("what needs the link", func() { useAll(e.b) })
}
