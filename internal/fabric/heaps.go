package fabric

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/heapmem"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb"
)

// windowed are the networks of this process whose fabrics have option puts, by windowKey. They have one link.
var windowed sync.Map

func windowKey(s *spec.Spec) string { return s.Kind + ":" + spec.DirectoryOf(s.Name, s.Node) }

// OpenHeapWindow returns what option puts leaves to the heap of this process. It waits until the neighbour has come. It
// returns nil if the fabric has no such option, this process does not own the links of its node, or another heap of this
// process had the memory in this session.
func OpenHeapWindow(ctx context.Context, spec *spec.Spec) (*heapmem.Window, error) {
	v, ok := windowed.Load(windowKey(spec))
	if !spec.Puts || !ok {
		return nil, nil
	}
	f := v.(*Fabric)
	for l := f.links[0]; ; {
		f.mu.Lock()
		changed, up, dev, ring := f.changed, l.up(), l.half, l.ring
		f.mu.Unlock()
		if up {
			own, far := ring.Epochs()
			return dev.Take(l.to, own, far)
		}
		why := f.why(l.to)
		misfit := Misfit(why) && !errors.Is(why, ntb.ErrInUse) // a process of a job before may be about to end
		if misfit || errors.Is(why, syscall.EINVAL) || ctx.Err() != nil || f.ctx.Err() != nil {
			return nil, fmt.Errorf("option puts=window: %w", why)
		}
		f.wait(ctx, lookAgain, changed, nil)
	}
}

// halve returns what a device leaves to a link. It closes the device if that is too little.
func (f *Fabric) halve(l *linkEnd, dev ntb.Device) (ntb.Device, error) {
	out := dev.Outbound()
	heap, err := f.spec.HeapBytes(min(len(dev.Inbound()), out.Len()))
	if err != nil {
		return nil, errors.Join(err, dev.Close())
	}
	d := heapmem.Divide(dev, heap)
	f.mu.Lock()
	defer f.mu.Unlock()
	l.half = d
	return d, nil
}
