package heapmem

import (
	"errors"
	"fmt"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// Device is a device without the parts of its windows that are for heaps.
type Device struct {
	ntb.Device
	heap int // bytes at the end of both windows

	mu           lock.Mutex[lock.Attach] // guards the following
	link, window bool                    // they use the device
	taken        bool                    // there was a Window
}

// Divide leaves heap bytes at the end of both windows of a device to heaps.
func Divide(dev ntb.Device, heap int) *Device { return &Device{Device: dev, heap: heap, link: true} }

// Inbound implements ntb.Device.
func (d *Device) Inbound() []byte {
	in := d.Device.Inbound()
	n := len(in) - d.heap
	return in[:n:n]
}

// Outbound implements ntb.Device.
func (d *Device) Outbound() ntb.Window {
	out := d.Device.Outbound()
	return out.Part(0, out.Len()-d.heap)
}

// Close takes the link down. The memory stays until the Window is closed too.
func (d *Device) Close() error {
	d.Device.Disable()
	return d.leave(&d.link)
}

// leave ends the use by the link or by the Window.
func (d *Device) leave(user *bool) error {
	d.mu.Lock()
	*user = false
	used := d.link || d.window
	d.mu.Unlock()
	if used {
		return nil
	}
	return d.Device.Close()
}

// Window is what a session of a bridge has for symmetric heaps: memory of this side, to which the neighbour stores, and
// memory of the neighbour.
type Window struct {
	Node     int        // the neighbour's
	Own, Far uint32     // numbers of the session; the neighbour has them the other way round
	Out      ntb.Window // the neighbour's part

	dev     *Device
	release []func() // of what is mapped
}

// Take makes the Window of a link to a node, over d, with the session's numbers. It returns nil if there was one, so that
// none carries what an earlier heap has stored, or if the link has ended.
func (d *Device) Take(node int, own, far uint32) (*Window, error) {
	if caps := d.Caps(); caps.Mapper == nil {
		return nil, fmt.Errorf("option puts=window: memory of a bridge of kind %s cannot be mapped for heaps: %w", caps.Backend, errors.ErrUnsupported)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.link || d.taken {
		return nil, nil
	}
	d.window, d.taken = true, true
	out := d.Device.Outbound()
	return &Window{Node: node, Own: own, Far: far, Out: out.Slice(out.Len()-d.heap, d.heap), dev: d}, nil
}

// Map maps this side's part over parts of a heap, one after the other, as much as there is. It is zero then. The first must
// fit.
func (w *Window) Map(parts ...[]byte) error {
	at, left := len(w.dev.Inbound()), w.dev.heap
	if left < len(parts[0]) {
		return fmt.Errorf("option puts=window: the heap's part of the window has %d bytes, want at least %d", left, len(parts[0]))
	}
	for _, part := range parts {
		part = part[:min(len(part), left)]
		if len(part) == 0 {
			break
		}
		release, err := w.dev.Caps().Mapper.MapAt(at, part)
		if err != nil {
			return err
		}
		w.release, at, left = append(w.release, release), at+len(part), left-len(part)
	}
	return nil
}

// Up reports whether the session has not ended. What is stored after that reaches nobody.
func (w *Window) Up() bool { return w.dev.Device.LinkUp() }

// Order is that of the device.
func (w *Window) Order() { w.dev.Device.Order() }

// Close is called before the heap is unmapped.
func (w *Window) Close() error {
	for _, release := range w.release {
		release()
	}
	return w.dev.leave(&w.dev.window)
}
