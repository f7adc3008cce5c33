package fabric

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ring"
)

// Option puts=window leaves the end of both windows of a bridge to symmetric heaps: the second half, or as much as option
// heap says. The link has the rest. Heap memory is not checked: any PE may store any bytes there.
//
// More than two nodes have one memory, and a link from each to each. Then a heap is in no link's window, but in a part of
// the memory, as much as option heap says, to which all neighbours store.

var errPuts = errors.New("option puts=window: want two nodes with one wire, a line or a mesh, without failover, " +
	"or option heap and a mesh of N nodes whose wires are all ends with ,peers=N")

// checkPuts checks that a link leads to each node, without another way. If there are several, it has the ends leave out what
// is for heaps.
func (s *Spec) checkPuts() error {
	if s.Failover || s.Nodes == 2 && s.Kind == topologyRing {
		return errPuts
	}
	if s.Nodes == 2 {
		return nil
	}
	for name, e := range s.ends {
		if e.places != s.Nodes {
			return errPuts
		}
		e.heap, e.least = s.Heap, s.leastWindow()
		s.ends[name] = e
	}
	if s.Kind != topologyMesh || s.Heap == 0 || len(s.ends) != s.Nodes-1 {
		return errPuts
	}
	return nil
}

// leastWindow returns how large each side's window of a link is at least.
func (s *Spec) leastWindow() int {
	o, least := s.options(), 8
	if s.Nodes == 2 {
		least = 4
	}
	o.Slots = min(cmp.Or(o.Slots, least), least)
	return o.LinkWindow(0)
}

// heapBytes returns how much of windows of these sizes is for heaps, the same number on both sides. It returns an error
// if option heap leaves no room for the link.
func (s *Spec) heapBytes(in, out int) (int, error) {
	n := min(in, out)
	switch {
	case s.Nodes > 2:
		return 0, nil
	case s.Heap == 0:
		return n / 2 &^ 4095, nil
	}
	if most := (n - s.leastWindow()) &^ 4095; s.Heap > most {
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

	taken bool // there was a HeapWindow; guarded by hosts.mu
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

// take makes the HeapSession of a session, which has only one. It returns nil if the session has ended. The caller holds
// hosts.mu.
func (d *halved) take(l *nodeLink) *HeapSession {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.users == 0 {
		return nil
	}
	d.users, d.taken = d.users+1, true
	out := d.Device.Outbound()
	s := &HeapSession{Node: l.to, dev: d, in: len(d.Device.Inbound()) - d.heap, off: out.Len() - d.heap}
	s.Own, s.Far = l.ring.Epochs()
	if s.Out = out.Slice(s.off, d.heap); d.heap == 0 {
		s.Out = d.caps.Mapper.Heap()
	}
	return s
}

// HeapWindow is what the memory of bridges has for the symmetric heap of this process, and for those of its neighbours.
type HeapWindow struct {
	Sessions []*HeapSession // of all links

	release []func() // of what is mapped
	hosts   *hosts
}

// HeapSession is what a session of the bridge to a neighbour has for symmetric heaps: memory of this side, to which the
// neighbour stores, and memory of the neighbour.
type HeapSession struct {
	Node     int        // the neighbour's
	Own, Far uint32     // numbers of the session; the neighbour has them the other way round
	Out      ntb.Window // the neighbour's part

	dev     *halved
	in, off int // where both parts begin, see ntb.Mapper
}

// windowed are the networks of this process whose fabrics have option puts, by windowKey.
var windowed sync.Map

type windowKey struct {
	kind, name string
	node       int
}

func (s *Spec) windowKey() windowKey { return windowKey{s.Kind, s.Name, s.Node} }

// OpenHeapWindow returns what option puts leaves to the heap of this process. It waits until all neighbours have come. It
// returns nil if the fabric has no such option, this process does not own the links of its node, or another heap of this
// process had the memory in one of these sessions.
func OpenHeapWindow(ctx context.Context, spec *Spec) (*HeapWindow, error) {
	v, ok := windowed.Load(spec.windowKey())
	if !spec.Puts || !ok {
		return nil, nil
	}
	h := v.(*hosts)
	for {
		h.mu.Lock()
		changed := h.changed
		i := slices.IndexFunc(h.links, func(l *nodeLink) bool { return !l.up() })
		if i < 0 {
			w, err := h.takeHeaps()
			h.mu.Unlock()
			if w != nil && len(w.Sessions) < len(h.links) {
				return nil, errors.Join(err, w.Close())
			}
			return w, nil
		}
		to := h.links[i].to
		h.mu.Unlock()
		switch why := h.why(to); {
		case h.ctx.Err() != nil:
			return nil, ErrClosed
		case ctx.Err() != nil, Misfit(why) && !errors.Is(why, ntb.ErrInUse), // a process of a job before may be about to end
			errors.Is(why, syscall.EINVAL):
			return nil, fmt.Errorf("option puts=window: %w", why)
		}
		h.wait(ctx, lookAgain, changed, nil)
	}
}

// takeHeaps makes the HeapWindow of the links, which are up. None of them carries what an earlier one has stored. It has
// fewer sessions than links if one has ended, or its memory was taken before. The caller holds mu.
func (h *hosts) takeHeaps() (*HeapWindow, error) {
	if h.spec.Nodes > 2 && !h.heaped.CompareAndSwap(false, true) {
		return nil, nil
	}
	w := &HeapWindow{hosts: h}
	for _, l := range h.links {
		if l.half.caps.Mapper == nil {
			return w, fmt.Errorf("option puts=window: memory of a bridge of kind %s cannot be mapped for heaps: %w", l.half.caps.Backend, errors.ErrUnsupported)
		}
		if l.half.taken {
			return w, nil
		}
	}
	for _, l := range h.links {
		if s := l.half.take(l); s != nil {
			w.Sessions = append(w.Sessions, s)
		}
	}
	return w, nil
}

// Map maps this side's part over parts of a heap, one after the other, as much as there is. It is zero then. The first must
// fit.
func (w *HeapWindow) Map(parts ...[]byte) error {
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
func (w *HeapWindow) sameMemory(page []byte) error {
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
				nodeName(w.Sessions[0].Node), nodeName(s.Node))
		}
	}
	return nil
}

// To returns the session to a node, or nil.
func (w *HeapWindow) To(node int) *HeapSession {
	for _, s := range w.Sessions {
		if s.Node == node {
			return s
		}
	}
	return nil
}

// Load loads from the neighbour's part, see ntb.Mapper.
func (s *HeapSession) Load(to []byte, off int) bool { return s.dev.caps.Mapper.Load(to, s.off+off) }

// Up reports whether the session has not ended. What is stored after that reaches nobody.
func (s *HeapSession) Up() bool { return s.dev.Device.LinkUp() }

// Order is that of the device.
func (s *HeapSession) Order() { s.dev.Device.Order() }

// Close is called before the heap is unmapped.
func (w *HeapWindow) Close() (err error) {
	for _, release := range w.release {
		release()
	}
	w.hosts.heaped.Store(false)
	for _, s := range w.Sessions {
		err = errors.Join(err, s.dev.release())
	}
	return err
}
