package fabric

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/heapmem"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb"
)

// windowed are the networks of this process whose fabrics have option puts, by windowKey.
var windowed sync.Map

type windowKey struct {
	kind, name string
	node       int
}

func keyOf(s *spec.Spec) windowKey { return windowKey{s.Kind, s.Name, s.Node} }

// OpenHeapWindow returns what option puts leaves to the heap of this process. It waits until all neighbours have come. It
// returns nil if the fabric has no such option, this process does not own the links of its node, or another heap of this
// process had the memory in one of these sessions.
func OpenHeapWindow(ctx context.Context, spec *spec.Spec) (*heapmem.Window, error) {
	v, ok := windowed.Load(keyOf(spec))
	if !spec.Puts || !ok {
		return nil, nil
	}
	h := v.(*hosts)
	for {
		h.mu.Lock()
		changed := h.changed
		i := slices.IndexFunc(h.links, func(l *nodeLink) bool { return !l.up() })
		if i < 0 {
			links := h.heapLinks()
			h.mu.Unlock()
			if len(links) > 1 && !h.heaped.CompareAndSwap(false, true) {
				return nil, nil
			}
			return heapmem.Take(links, func() { h.heaped.Store(false) })
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

// heapLinks returns the links, which are up, for heaps. The caller holds mu.
func (h *hosts) heapLinks() (links []heapmem.Link) {
	for _, l := range h.links {
		own, far := l.ring.Epochs()
		links = append(links, heapmem.Link{Node: l.to, Own: own, Far: far, Device: l.half})
	}
	return links
}

// halve returns what a device leaves to a link. It closes the device if that is too little.
func (h *hosts) halve(l *nodeLink, dev ntb.Device) (ntb.Device, error) {
	out := dev.Outbound()
	heap, err := h.spec.HeapBytes(len(dev.Inbound()), out.Len())
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	d := heapmem.Divide(dev, heap)
	h.mu.Lock()
	defer h.mu.Unlock()
	l.half = d
	return d, nil
}
