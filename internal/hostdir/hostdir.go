package hostdir

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

const (
	MaxPort   = 65535 // ports are 1 to MaxPort
	FirstFree = 49152 // port 0 claims a free port from here on

	// version is that of the directory: of the names in it, the claims, and how cables are
	// made.
	version = 2

	maxName      = 40          // length of a directory's name in bytes
	maxProcess   = 65535       // process numbers are 1 to maxProcess
	processBytes = 65536       // more than any process number
	ownerPort    = MaxPort + 1 // stands for the ownership of a host's bridges; no listener has it
	portShift    = 17          // bits of the bytes for a port in the claim file: 1 + processBytes fit
)

// HandoverTime is how long a mark counts, by which a process hands a port over.
const HandoverTime = time.Second

// Socket is a TCP socket for which a process of the host accepts connections.
type Socket struct {
	Cookie  uint64 // at least the bits of it that are cookieKept
	Process int
}

// MayBe reports whether the socket may be the one of a cookie.
func (s Socket) MayBe(cookie uint64) bool { return (s.Cookie^cookie)&cookieKept == 0 }

// cookieKept are the bits of a socket's cookie by which it is published.
const cookieKept = 1<<30 - 1

// Peer is the user of the process at the other end of a cable, as the kernel reports it. It
// is that of the moment when the process connected, or began to listen.
type Peer = ntb.User

// Self returns the user of this process.
func Self() Peer {
	groups, _ := os.Getgroups() // where that fails there are none
	return Peer{PID: os.Getpid(), UID: os.Geteuid(), GID: os.Getegid(), Groups: groups}
}

// isIn reports whether a peer is in a group.
func isIn(p Peer, gid int) bool { return p.GID == gid || slices.Contains(p.Groups, gid) }

// ErrOtherUser reports that the process which has a number is not of a user that was asked for.
var ErrOtherUser = errors.New("the process is of another user")

// ErrLocked reports that another process has locked a directory for too long. It is EBUSY.
var ErrLocked = fmt.Errorf("%w", syscall.EBUSY)

// ForbiddenError reports that a process may not use a place, or a cable to another process. It
// wraps EACCES.
type ForbiddenError struct{ why string }

// Error returns what is missing.
func (e *ForbiddenError) Error() string { return e.why + ": " + syscall.EACCES.Error() }

// Unwrap returns EACCES.
func (e *ForbiddenError) Unwrap() error { return syscall.EACCES }

func forbidden(format string, args ...any) error {
	return &ForbiddenError{fmt.Sprintf(format, args...)}
}

// LostError reports that the directory of a Dir was removed, or is no longer where other processes
// look for it. Those that come later do not find this one. It wraps ESTALE.
type LostError struct{ path string }

// Error returns what has happened, and what to do.
func (e *LostError) Error() string {
	return "fabric: " + e.path + " was removed or replaced, and processes that come now meet elsewhere: close this, and listen or open again: " +
		syscall.ESTALE.Error()
}

// Unwrap returns ESTALE.
func (e *LostError) Unwrap() error { return syscall.ESTALE }

// unsupportedError reports that this system has no place for the fabrics of this process,
// whatever other users do. It is errors.ErrUnsupported.
type unsupportedError struct{ error }

// Unwrap returns the reason, and what the error is.
func (e *unsupportedError) Unwrap() []error { return []error{e.error, errors.ErrUnsupported} }

func unsupported(format string, args ...any) error {
	return &unsupportedError{fmt.Errorf(format, args...)}
}

// refusal is EPERM or EACCES that the kernel has returned from a call, and none that this package makes.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

// kernels marks what the kernel has refused.
func kernels(err error) error {
	if isOne(err, syscall.EPERM, syscall.EACCES) {
		return refusal{err}
	}
	return err
}

// denied returns what the kernel has refused, in a directory of this user alone, as unsupported. The rights of the
// directory allow it, so a filter of system calls or a security module does not.
func denied(err error) error {
	if errors.As(err, new(refusal)) {
		return unsupported("%w: a filter of system calls, or a security module, denies it to this process", err)
	}
	return err
}

// Lack reports whether an error means that the system, or this process by its limits, is out of
// what a call needs: descriptors, memory, or room for files.
func Lack(err error) bool {
	return isOne(err, syscall.EMFILE, syscall.ENFILE, syscall.ENOMEM, syscall.ENOSPC, syscall.EDQUOT, syscall.EFBIG)
}

func isOne(err error, of ...error) bool {
	return slices.ContainsFunc(of, func(e error) bool { return errors.Is(err, e) })
}

// checkName refuses names of directories that are paths, or hidden.
func checkName(name string) error {
	if len(name) < 1 || len(name) > maxName || name[0] == '.' || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("fabric: directory %q: want 1 to %d bytes, no '/', no '.' first: %w", name, maxName, syscall.EINVAL)
	}
	return nil
}

// portByte returns the byte of the claim file that claims port.
func portByte(port int) int64 { return int64(port) << portShift }

// holderByte returns the byte which says that process holds port.
func holderByte(port, process int) int64 { return portByte(port) + 1 + int64(process) }
