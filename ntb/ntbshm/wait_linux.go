//go:build linux && (amd64 || arm64)

package ntbshm

import (
	"fmt"
	"os"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/shm/membarrier"
	"github.com/ntbnet/ntbnet/ntb"
	"golang.org/x/sys/unix"
)

// RingDoorbell changes the peer's ring word and causes an event at its doorbell. The
// system call orders the event after all stores before it (pair S12, with newRung).
func (d *device) RingDoorbell(bit int) {
	lock.Device()
	fd := d.peerBells[bit] // only a number: it may be used while inside the gate
	if !d.LinkUp() || !d.gate.Enter() {
		return
	}
	// The numbers of concurrent rings may arrive in either order. The one that
	// arrives last differs from what the peer saw before.
	d.peerHeader.Publish32(ringsAt+4*bit, d.rings[bit].Add(1))
	ringBell(fd)
	d.gate.Leave()
}

// WaitDoorbell parks in Go's poller until the ring word has changed. The poller is
// edge-triggered, and each ring is an event of its own for it. The word says whether
// a ring is new: an event that finds the word unchanged is no ring. So a peer that
// closes its end, or shuts it down without ringing, wakes the poller only. takeDown
// wakes the waiter by a deadline.
func (d *device) WaitDoorbell(bit int) error {
	if err := d.linkError(); err != nil {
		return err
	}
	if err := d.bells[bit].conn.Read(d.bells[bit].rung); err != nil {
		// Only takeDown and Close make the wait fail, and they stored the state
		// before. If anything else did, the doorbell is lost for good.
		d.takeDown()
	}
	return d.linkError()
}

// newRung makes the function that the poller calls before it parks and at each event
// (pair S12). The mapping stays while it runs: release closes the file first, which waits
// for it.
func (d *device) newRung(bit int) func(uintptr) bool {
	var seen uint32
	return func(uintptr) bool {
		word := ntb.Load32(d.own[:headerSize], ringsAt+4*bit)
		rung := word != seen
		seen = word
		return rung
	}
}

// linkError returns the error for WaitDoorbell in the present state.
func (d *device) linkError() error {
	switch d.state.Load() {
	case linkUp:
		return nil
	case linkDown:
		return ntb.ErrLinkDown
	default:
		return ntb.ErrClosed
	}
}

// Order makes every running thread of both processes pass a barrier. So a publisher
// needs none between its store and its load.
func (d *device) Order() {
	lock.Device()
	if d.caps.FenceToLook {
		ntb.Fence()
		return
	}
	if err := membarrier.Global(); err != nil {
		// The barrier worked when the process began. To go on without it would lose
		// wake-ups.
		d.takeDown()
	}
}

// Reclaim implements ntb.Device. Pages are the system's, 4 KiB to 64 KiB.
func (d *device) Reclaim(off, n int) error {
	if off < 0 || n < 0 || off > len(d.inbound)-n {
		panic(fmt.Sprintf("ntbshm: reclaim %d bytes at %d of a window of %d", n, off, len(d.inbound)))
	}
	if !d.gate.Enter() {
		return ntb.ErrClosed
	}
	defer d.gate.Leave()
	page := os.Getpagesize()
	first := (headerSize + off + page - 1) / page * page
	end := (headerSize + off + n) / page * page
	if first >= end {
		return nil
	}
	if err := unix.Madvise(d.own[first:end], unix.MADV_REMOVE); err != nil {
		return fmt.Errorf("ntbshm: reclaim %d bytes: %w", end-first, err)
	}
	return nil
}
