package fabric

import (
	"errors"
	"sync"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
)

// Peer is the user of a process, as the kernel reports it.
type Peer = hostdir.Peer

// Self returns the user of this process.
func Self() Peer { return hostdir.Self() }

// users are the users of the processes to which links are being brought up. They are found by
// the last byte of the inbound memory of the link's device, which is the last one of what the
// link calls local, too: the memory is that device's alone. Handlers ask, so it takes no lock.
type users struct{ all sync.Map } // of *byte to Peer

// set says whose process is at the other end of a device, until the result is called.
func (u *users) set(dev ntb.Device, who Peer) (forget func()) {
	key := lastByte(dev.Inbound())
	u.all.Store(key, who)
	return func() { u.all.Delete(key) }
}

func lastByte(b []byte) *byte { return &b[len(b)-1] }

// Whose returns the user of the process at the other end of a link. It is called while the
// link's handlers are opened. ok is false if only other processes could say, since the
// link leads to another host.
func (f *Fabric) Whose(p *link.Peer) (who Peer, ok bool) {
	if v, ok := f.net.users.all.Load(lastByte(p.Local())); ok {
		return v.(Peer), true
	}
	return who, false
}

// Forbidden reports whether an error means that a process is not allowed what it tried.
func Forbidden(err error) bool {
	forbidden := new(hostdir.ForbiddenError)
	return errors.As(err, &forbidden)
}

// Impossible reports whether an error of Open means that this system has no such fabrics for
// this process, whatever other users do there: it is another system, it gives no memory to
// share, it has no directory to meet in, or this process cannot distinguish its user.
func Impossible(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, ntb.ErrNotSupported)
}

// Forbid counts and logs another process that was refused because of its user.
func (f *Fabric) Forbid(why error) { f.net.refused.report(why) }
