package heapmem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb"
)

// Device is a device without the parts of its windows that are for heaps.
type Device struct {
	ntb.Device
	caps  ntb.Caps
	heap  int // bytes at the end of both windows
	once  sync.Once
	mu    lock.Mutex[lock.Attach] // guards the following
	users int                     // of the device: the link, and a Window
	taken bool                    // there was a Window
}

// Divide leaves heap bytes at the end of both windows of a device to heaps. 0 stands for those of a memory of which
// the device uses another part.
func Divide(dev ntb.Device, heap int) *Device {
	d := &Device{Device: dev, caps: dev.Caps(), heap: heap, users: 1}
	return d
}

// Caps implements ntb.Device.
func (d *Device) Caps() ntb.Caps { return d.caps }

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
	var err error
	d.once.Do(func() {
		d.Device.Disable()
		err = d.release()
	})
	return err
}

func (d *Device) release() error {
	d.mu.Lock()
	d.users--
	last := d.users == 0
	d.mu.Unlock()
	if last {
		return d.Device.Close()
	}
	return nil
}

// take makes the Session of a link, which has only one. It returns nil if there was one, or the link has ended.
func (d *Device) take(l Link) *Session {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.users == 0 || d.taken {
		return nil
	}
	d.users, d.taken = d.users+1, true
	out := d.Device.Outbound()
	s := &Session{Node: l.Node, Own: l.Own, Far: l.Far, dev: d, in: len(d.Device.Inbound()) - d.heap, off: out.Len() - d.heap}
	if s.Out = out.Slice(s.off, d.heap); d.heap == 0 {
		s.Out = d.caps.Mapper.Heap()
	}
	return s
}

// fresh returns whether no Window had the session's memory, or why it cannot be mapped.
func (d *Device) fresh() (bool, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.caps.Mapper == nil {
		return false, fmt.Errorf("option puts=window: memory of a bridge of kind %s cannot be mapped for heaps: %w", d.caps.Backend, errors.ErrUnsupported)
	}
	return !d.taken, nil
}

// Link is a link that is up, over a Device.
type Link struct {
	Node     int    // the neighbour's
	Own, Far uint32 // numbers of the session; the neighbour has them the other way round
	Device   *Device
}

// Window is what the memory of bridges has for the symmetric heap of this process, and for those of its neighbours.
type Window struct {
	Sessions []*Session // of all links

	release []func() // of what is mapped
	closed  func()
}

// Session is what a session of the bridge to a neighbour has for symmetric heaps: memory of this side, to which the
// neighbour stores, and memory of the neighbour.
type Session struct {
	Node     int        // the neighbour's
	Own, Far uint32     // numbers of the session; the neighbour has them the other way round
	Out      ntb.Window // the neighbour's part

	dev     *Device
	in, off int // where both parts begin, see ntb.Mapper
}

// Take makes the Window of links to all neighbours. None of them carries what an earlier heap has stored: Take returns nil
// if a session's memory was taken before, or a session has ended. closed is called when the Window is closed, or there is
// none.
func Take(links []Link, closed func()) (*Window, error) {
	w := &Window{closed: closed}
	for _, l := range links {
		if fresh, err := l.Device.fresh(); err != nil || !fresh {
			return nil, errors.Join(err, w.Close())
		}
	}
	for _, l := range links {
		s := l.Device.take(l)
		if s == nil {
			return nil, w.Close()
		}
		w.Sessions = append(w.Sessions, s)
	}
	return w, nil
}

// Map maps this side's part over parts of a heap, one after the other, as much as there is. It is zero then. The first must
// fit.
func (w *Window) Map(parts ...[]byte) error {
	first := w.Sessions[0]
	at, left, apart := first.in, first.Out.Len(), first.dev.heap == 0
	if left < len(parts[0]) {
		return fmt.Errorf("option puts=window: the heap's part of the window has %d bytes, want at least %d", left, len(parts[0]))
	}
	if apart {
		if err := w.sameMemory(parts[0][:4096]); err != nil {
			return err
		}
	}
	for _, part := range parts {
		part = part[:min(len(part), left)]
		if len(part) == 0 {
			break
		}
		release, err := first.dev.caps.Mapper.MapAt(at, part)
		if err != nil {
			return err
		}
		w.release, at, left = append(w.release, release), at+len(part), left-len(part)
		for off := 0; apart && off < len(part); off += 8 {
			ntb.Clear64(part, off)
		}
	}
	ntb.Fence() // before another PE hears of this one
	return nil
}

// sameMemory checks that all neighbours store to the same memory of this side. It maps it over a page.
func (w *Window) sameMemory(page []byte) error {
	mark := rand.Uint64() | 1
	for i, s := range w.Sessions {
		release, err := s.dev.caps.Mapper.MapAt(s.in, page)
		if err != nil {
			return err
		}
		same := i == 0 || ntb.Load64(page, 0) == mark
		binary.NativeEndian.PutUint64(page, mark)
		ntb.Fence()
		release()
		if !same {
			return fmt.Errorf("option puts=window: the wires to %s and %s are ends of two memories: want one",
				spec.NodeName(w.Sessions[0].Node), spec.NodeName(s.Node))
		}
	}
	return nil
}

// To returns the session to a node, or nil.
func (w *Window) To(node int) *Session {
	for _, s := range w.Sessions {
		if s.Node == node {
			return s
		}
	}
	return nil
}

// Load loads from the neighbour's part, see ntb.Mapper.
func (s *Session) Load(to []byte, off int) bool { return s.dev.caps.Mapper.Load(to, s.off+off) }

// Up reports whether the session has not ended. What is stored after that reaches nobody.
func (s *Session) Up() bool { return s.dev.Device.LinkUp() }

// Order is that of the device.
func (s *Session) Order() { s.dev.Device.Order() }

// Close is called before the heap is unmapped.
func (w *Window) Close() (err error) {
	for _, release := range w.release {
		release()
	}
	w.closed()
	for _, s := range w.Sessions {
		err = errors.Join(err, s.dev.release())
	}
	return err
}
