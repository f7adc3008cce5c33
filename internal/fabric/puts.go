package fabric

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
)

// Option puts=window leaves the end of both windows of a bridge to symmetric heaps: the second half, or as much as option
// heap says. The link has the rest. Neither checks what the neighbour stores there: a heap is what PEs store to.

var errPuts = errors.New("option puts=window: want two nodes with one wire, a line or a mesh, without failover")

// checkPuts checks that there is one wire, and one way to the neighbour.
func (s *Spec) checkPuts() error {
	if s.Nodes != 2 || s.Kind == topologyRing || s.Failover {
		return errPuts
	}
	return nil
}

// leastSlots is how many slots a lane has in the smallest window of a link of two nodes.
const leastSlots = 4

// heapBytes returns how much of windows of these sizes is for heaps, the same number on both sides. It returns an error
// if option heap leaves no room for the link.
func (s *Spec) heapBytes(in, out int) (int, error) {
	n := min(in, out)
	if s.Heap == 0 {
		return n / 2 &^ 4095, nil
	}
	o := s.options()
	o.Slots = min(cmp.Or(o.Slots, leastSlots), leastSlots)
	if most := (n - o.LinkWindow(0)) &^ 4095; s.Heap > most {
		return 0, fmt.Errorf("%w: option heap=%d: windows of %d bytes have room for at most heap=%d beside the link",
			ring.ErrUnfit, s.Heap, n, max(0, most))
	}
	return s.Heap, nil
}

// halved is a device without the parts of its windows that are for heaps.
type halved struct {
	ntb.Device
	caps  ntb.Caps
	heap  int // bytes at the end of both windows
	once  sync.Once
	mu    lock.Mutex[lock.Attach] // guards the following
	users int                     // of the device: the link, and a HeapWindow
	taken bool                    // there was a HeapWindow
}

// halve returns what a device leaves to a link. It closes the device if that is too little.
func (h *hosts) halve(l *nodeLink, dev ntb.Device) (ntb.Device, error) {
	out := dev.Outbound()
	heap, err := h.spec.heapBytes(len(dev.Inbound()), out.Len())
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	d := &halved{Device: dev, caps: dev.Caps(), heap: heap, users: 1}
	d.caps = d.caps.WithoutFrames()
	h.mu.Lock()
	defer h.mu.Unlock()
	l.half = d
	return d, nil
}

func (d *halved) Caps() ntb.Caps { return d.caps }

func (d *halved) Inbound() []byte {
	in := d.Device.Inbound()
	n := len(in) - d.heap
	return in[:n:n]
}

func (d *halved) Outbound() ntb.Window {
	out := d.Device.Outbound()
	return out.Part(0, out.Len()-d.heap)
}

// Close takes the link down. The memory stays until the HeapWindow is closed too.
func (d *halved) Close() error {
	var err error
	d.once.Do(func() {
		d.Device.Disable()
		err = d.release()
	})
	return err
}

func (d *halved) release() error {
	d.mu.Lock()
	d.users--
	last := d.users == 0
	d.mu.Unlock()
	if last {
		return d.Device.Close()
	}
	return nil
}

// take makes the HeapWindow of a session. There is one: so the memory is zero. It returns nil if there was one, or the
// session has ended.
func (d *halved) take(l *ring.Link) *HeapWindow {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.users == 0 || d.taken {
		return nil
	}
	d.users, d.taken = d.users+1, true
	w := &HeapWindow{dev: d}
	w.Own, w.Far = l.Epochs()
	return w
}

// HeapWindow is what a session of the bridge to the neighbour has for symmetric heaps: the end of this side's inbound
// window, and of the neighbour's.
type HeapWindow struct {
	Own, Far uint32 // numbers of the session; the neighbour has them the other way round

	dev     *halved
	release []func() // of what is mapped
}

// windowed are the networks of this process whose fabrics have option puts, by windowKey.
var windowed sync.Map

type windowKey struct {
	kind, name string
	node       int
}

func (s *Spec) windowKey() windowKey { return windowKey{s.Kind, s.Name, s.Node} }

// OpenHeapWindow returns what option puts leaves to the heap of this process. It waits until the neighbour has come. It
// returns nil if the fabric has no such option, this process does not own the links of its node, or another heap of this
// process had the memory in this session.
func OpenHeapWindow(ctx context.Context, spec *Spec) (*HeapWindow, error) {
	v, ok := windowed.Load(spec.windowKey())
	if !spec.Puts || !ok {
		return nil, nil
	}
	h := v.(*hosts)
	l := h.links[0] // there is one wire
	for {
		h.mu.Lock()
		changed, up, half, made := h.changed, l.up(), l.half, l.ring
		h.mu.Unlock()
		if up && half.caps.Mapper == nil {
			return nil, fmt.Errorf("option puts=window: memory of a bridge of kind %s cannot be mapped for heaps: %w", half.caps.Backend, errors.ErrUnsupported)
		}
		if up {
			return half.take(made), nil
		}
		switch why := h.why(l.to); {
		case h.ctx.Err() != nil:
			return nil, ErrClosed
		case ctx.Err() != nil, Misfit(why) && !errors.Is(why, ntb.ErrInUse): // a process of a job before may be about to end
			return nil, fmt.Errorf("option puts=window: %w", why)
		}
		h.wait(ctx, lookAgain, changed, nil)
	}
}

// Map maps this side's part over parts of a heap, one after the other, as much as there is. It is zero. The first must
// fit.
func (w *HeapWindow) Map(parts ...[]byte) error {
	at := len(w.dev.Device.Inbound()) - w.dev.heap
	if w.dev.heap < len(parts[0]) {
		return fmt.Errorf("option puts=window: the heap's part of the window has %d bytes, want at least %d", w.dev.heap, len(parts[0]))
	}
	for _, part := range parts {
		n := min(len(part), len(w.dev.Device.Inbound())-at)
		if n == 0 {
			break
		}
		release, err := w.dev.caps.Mapper.MapAt(at, part[:n])
		if err != nil {
			return err
		}
		w.release, at = append(w.release, release), at+n
	}
	return nil
}

// Out returns the neighbour's part.
func (w *HeapWindow) Out() ntb.Window {
	out := w.dev.Device.Outbound()
	return out.Slice(out.Len()-w.dev.heap, w.dev.heap)
}

// Load loads from the neighbour's part, see ntb.Mapper.
func (w *HeapWindow) Load(to []byte, off int) bool {
	out := w.dev.Device.Outbound()
	return w.dev.caps.Mapper.Load(to, out.Len()-w.dev.heap+off)
}

// Order is that of the device.
func (w *HeapWindow) Order() { w.dev.Device.Order() }

// Close is called before the heap is unmapped.
func (w *HeapWindow) Close() error {
	for _, release := range w.release {
		release()
	}
	return w.dev.release()
}
