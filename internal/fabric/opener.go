package fabric

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb"
)

// opener is what a wire is made of: how this node opens the device of a link.
type opener interface {
	// reachable reports whether the neighbour runs, as far as one can know.
	reachable(l *linkEnd) (bool, error)
	// open makes the link. It returns false if there is none and the next try should wait.
	open(l *linkEnd) bool
	// ended is told that a link that was up has ended, and why.
	ended(l *linkEnd, why error)
	// missing returns why the other end cannot be reached, if that is known while it is waited for.
	missing() error
	// close releases what the wire keeps. Its links have ended, or end with it.
	close()
}

// socketWire is a wire within a machine, or a member's link to the owner. A Unix socket
// becomes the device, after a greeting and an answer.
type socketWire struct{ fabric *Fabric }

func (w socketWire) reachable(l *linkEnd) (bool, error) { return w.fabric.registry.present(l.to) }
func (w socketWire) open(l *linkEnd) bool               { return w.fabric.begin(l) }
func (w socketWire) ended(*linkEnd, error)              {}
func (w socketWire) missing() error                     { return nil }
func (w socketWire) close()                             {}

// attachedWire is a wire that is there by itself, such as a bridge between two machines. Each
// of its sessions is a device. What else a greeting compares is compared when the link comes
// up.
type attachedWire struct {
	fabric     *Fabric        // immutable
	attachment ntb.Attachment // immutable

	said string // why there is no link, as logged; of the goroutine that keeps the link
}

// reachable always reports true: an attached wire learns of its neighbour only in open.
func (w *attachedWire) reachable(*linkEnd) (bool, error) { return true, nil }

// open waits as long as it takes the neighbour to come, and then as long as a link may take.
func (w *attachedWire) open(l *linkEnd) bool {
	f := w.fabric
	f.note(l, ask, nil)
	dev, err := w.attachment.Open(f.ctx)
	if err != nil {
		f.note(l, refused, err)
	} else {
		f.note(l, agreed, nil) // the neighbour has come
		dev, _ = wrap(f.spec, dev, nil)
		if f.spec.Puts {
			dev, err = f.halve(l, dev)
		}
	}
	if err == nil {
		dev = identify(dev, nil, true)
	}
	ctx, cancel := context.WithTimeout(f.ctx, linkTimeout)
	defer cancel()
	f.refused.half(err)
	err = f.finish(ctx, l, dev, err)
	f.refused.check(err)
	w.log(l, err)
	return err == nil
}

// log logs why a link does not come up, each reason once, and that it has come up after that.
func (w *attachedWire) log(l *linkEnd, err error) {
	switch {
	case err == nil && w.said != "":
		w.said = ""
		slog.Info("fabric: the link has come up", "to", spec.NodeName(l.to))
	case err != nil && w.fabric.ctx.Err() == nil && err.Error() != w.said:
		w.said = err.Error()
		slog.Warn("fabric: there is no link, it is tried again", "to", spec.NodeName(l.to), "reason", err)
	}
}

// ended logs that the link has gone down. Its next line is that it has come up, or another reason.
func (w *attachedWire) ended(l *linkEnd, why error) {
	if w.fabric.ctx.Err() == nil {
		w.said = why.Error()
		slog.Warn("fabric: the link has gone down", "to", spec.NodeName(l.to), "reason", why)
	}
}

// missing asks the attachments that know.
func (w *attachedWire) missing() error {
	if a, ok := w.attachment.(interface{ Why() error }); ok {
		return a.Why()
	}
	return nil
}

func (w *attachedWire) close() { w.attachment.Close() }

// attachWires makes the ends of this node's wires.
func (f *Fabric) attachWires() error {
	for _, l := range f.links {
		l.by = socketWire{f}
		if l.kind == toOwner {
			continue
		}
		a, err := f.spec.AttachWire(l.wire)
		if err == nil && a == nil && f.spec.Puts {
			err = errors.New("option puts=window: want a bridge, as in right=ntb, right=ivshmem:/PATH or right=file:/PATH")
		}
		if err != nil {
			f.detachWires()
			return fmt.Errorf("attach the wire to %s: %w", spec.NodeName(l.to), err)
		}
		if a != nil {
			l.by = &attachedWire{fabric: f, attachment: a}
		}
	}
	return nil
}

func (f *Fabric) detachWires() {
	for _, l := range f.links {
		if l.by != nil {
			l.by.close()
		}
	}
}

// bySocket reports whether cables become the link.
func (l *linkEnd) bySocket() bool {
	_, ok := l.by.(socketWire)
	return ok
}
