package fabric

import (
	"errors"
	"os"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/ntb"
)

// Peer is the user of a process, as the kernel reports it.
type Peer = hostdir.Peer

// Self returns the user of this process.
func Self() Peer { return hostdir.Self() }

// identified is a device of which the fabric knows whose process is at the other end, or that
// nobody knows.
type identified struct {
	ntb.Device
	caps ntb.Caps
}

// Caps implements ntb.Device.
func (d *identified) Caps() ntb.Caps { return d.caps }

// ofUser returns a device whose other end is a process of a user, as the kernel says.
func ofUser(dev ntb.Device, who Peer) *identified {
	d := &identified{dev, dev.Caps()}
	d.caps.User, d.caps.Untrusted = &who, who.UID != os.Geteuid()
	return d
}

// ofHost returns d, whose other end is a process of another host. Who dials or listens there
// is not known, so it counts as nobody.
func (d *identified) ofHost() ntb.Device {
	d.caps.User = nil
	return d
}

// ofUnknown returns a device of which nobody here knows who is at the other end.
func ofUnknown(dev ntb.Device) ntb.Device {
	d := &identified{dev, dev.Caps()}
	d.caps.User, d.caps.Untrusted = nil, true
	return d
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

// Lacking reports whether an error of Open means that the system, or this process by its limits,
// is out of what joining takes, the file system is read-only, or another process has locked the
// directory. Nobody has refused this process, and a later Open may succeed.
func Lacking(err error) bool {
	return hostdir.Lack(err) || errors.Is(err, syscall.EROFS) || errors.Is(err, hostdir.ErrLocked)
}

// Forbid counts and logs another process that was refused because of its user.
func (f *Fabric) Forbid(why error) { f.refused.report(why) }
