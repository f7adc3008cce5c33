package fabric

import (
	"errors"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/ntb"
)

// Peer is the user of a process, as the kernel reports it.
type Peer = hostdir.Peer

// Self returns the user of this process.
func Self() Peer { return hostdir.Self() }

// identified is a device with what the fabric knows of the process at the other end.
type identified struct {
	ntb.Device
	caps ntb.Caps
}

// Caps implements ntb.Device.
func (d *identified) Caps() ntb.Caps { return d.caps }

// identify returns a device whose other end is a process of who, nil for one of whom nothing is known here. It is
// untrusted unless it is of this user, and of this machine.
func identify(dev ntb.Device, who *Peer, untrusted bool) ntb.Device {
	caps := dev.Caps()
	caps.User, caps.Untrusted = who, untrusted
	return &identified{dev, caps}
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
