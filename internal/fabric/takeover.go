package fabric

import (
	"errors"
	"io/fs"
	"log/slog"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb"
)

// OnTakeover has a process own the links that its node shares when their owner has ended, of which it was a member: open opens
// the fabric once more, beside f, by another spec. What it returns is called when f is closed. OnTakeover is called by
// Open's start.
func (f *Fabric) OnTakeover(open func(*spec.Spec) (leave func(), err error)) { f.takeOver = open }

// awaitTakeover waits until no process owns the links, and then opens the fabric of the owner. Of several members one
// gets them. A process that may not have them stays a member.
func (f *Fabric) awaitTakeover() {
	said := ""
	for f.ctx.Err() == nil {
		f.mu.Lock()
		changed, pause := f.changed, time.Duration(0)
		isUp, alone := f.links[0].up(), f.links[0].state == absent
		f.mu.Unlock()
		if alone {
			err := f.own()
			if err == nil {
				return
			}
			if errors.Is(err, fs.ErrPermission) {
				slog.Warn("fabric: nobody owns the links of this node, and this process may not", "reason", err)
				return
			}
			if !errors.Is(err, ntb.ErrInUse) && !errors.Is(err, syscall.EADDRINUSE) && err.Error() != said {
				said = err.Error()
				slog.Warn("fabric: nobody owns the links of this node, it is tried again", "reason", err)
			}
		}
		if !isUp {
			pause = lookAgain
		}
		f.wait(f.ctx, pause, changed, nil)
	}
}

// own opens the fabric of the owner, if this process gets the links.
func (f *Fabric) own() error {
	own, release, err := f.spec.TakeOver()
	if err != nil {
		return err
	}
	if f.leave, err = f.takeOver(own); err != nil {
		return errors.Join(err, release())
	}
	return nil
}
