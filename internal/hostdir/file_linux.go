package hostdir

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ntbnet/ntbnet/ntb"
)

// Names in the directory. In a directory that several hosts share, all begin with the host's.
const (
	claimName       = "claims-v"  // and the version
	cablePrefix     = "cable-"    // and the process, "-", and 32 hexadecimal digits
	temporaryPrefix = "new-"      // as cables, or 32 hexadecimal digits; it is about to be renamed
	markPrefix      = "handover-" // and the port, "-", and the uid
)

// claimFile is the name of a host's claim file.
func (p Place) claimFile() string { return p.prefix() + claimName + strconv.Itoa(version) }

// claimVersion returns the version of a host's claim file by its name, or 0 if the name is
// not that of a claim file.
func (p Place) claimVersion(name string) int {
	digits, _ := strings.CutPrefix(name, p.prefix()+claimName)
	if v, err := strconv.Atoi(digits); err == nil && name == p.prefix()+claimName+strconv.Itoa(v) {
		return v
	}
	return 0
}

func isID(s string) bool { return len(s) == 32 && strings.Trim(s, "0123456789abcdef") == "" }

// openClaims opens the claim file, and makes it if it does not exist and create is set. It
// refuses a directory that processes of another version use.
func (p *openPlace) openClaims(create bool) (f claimFD, err error) {
	names, err := p.names()
	if err != nil {
		return f, err
	}
	if err := p.checkVersions(names); err != nil {
		return f, err
	}
	if f.own, err = p.openFile(p.claimFile(), create); err != nil {
		return f, err
	}
	if f.look, err = p.openFile(p.claimFile(), false); err != nil {
		unix.Close(f.own)
		return f, err
	}
	return f, nil
}

// checkVersions returns an error if a process has claimed anything in the claim file of
// another version.
func (p *openPlace) checkVersions(names []string) error {
	for _, name := range names {
		if v := p.claimVersion(name); v != 0 && v != version && p.isLocked(name) {
			return fmt.Errorf("fabric: processes of version %d of the directory use %s, and this program has version %d: update the side with the lower one, or use another fabric: %w",
				v, p.path, version, ntb.ErrVersion)
		}
	}
	return nil
}

// isLocked reports whether another open file has locked any byte of a file. Where it cannot be opened, no process
// of this user, or group, claims anything there.
func (p *openPlace) isLocked(name string) bool {
	fd, err := p.openFile(name, false)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart}
	return unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &l) == nil && l.Type != unix.F_UNLCK
}

// uninterrupted makes a call until no signal interrupts it.
func uninterrupted(call func() error) error {
	for {
		if err := call(); err != unix.EINTR {
			return err
		}
	}
}

func flock(fd, how int) error { return uninterrupted(func() error { return unix.Flock(fd, how) }) }

// lockBytes changes the locks of fd's open file on n bytes from start. n = 0 means
// all bytes from there on. If another open file has locked one of them, the error
// is EAGAIN.
func lockBytes(fd int, typ int16, start, n int64) error {
	l := unix.Flock_t{Type: typ, Whence: io.SeekStart, Start: start, Len: n}
	return uninterrupted(func() error { return unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &l) })
}

// locked finds a byte, of n > 0 bytes from start, that an open file other than fd's
// has locked. If there are several, it need not be the first.
func locked(fd int, start, n int64) (at int64, ok bool, err error) {
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: start, Len: n}
	err = uninterrupted(func() error { return unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &l) })
	switch {
	case err != nil:
		return 0, false, fmt.Errorf("fabric: look at claims: %w", err)
	case l.Type == unix.F_UNLCK:
		return 0, false, nil
	case l.Len != 1 || l.Start < start || l.Start-start >= n: // start+n may be 2^63
		return 0, false, fmt.Errorf("fabric: another program has locked %d bytes at %d of the claim file: %w",
			l.Len, l.Start, syscall.EPERM)
	}
	return l.Start, true, nil
}

// claimFD is a claim file. What this process has is locked by one open file, and looked for
// through another, since the kernel reports to an open file the locks of others only.
type claimFD struct{ own, look int }

func (f claimFD) lock(at int64) (bool, error) {
	switch err := lockBytes(f.own, unix.F_WRLCK, at, 1); err {
	case nil:
		return true, nil
	case unix.EAGAIN, unix.EACCES:
		return false, nil
	default:
		return false, err
	}
}

func (f claimFD) unlock(start, n int64) error { return lockBytes(f.own, unix.F_UNLCK, start, n) }

func (f claimFD) find(start, n int64) (int64, bool, error) {
	return locked(f.look, start, n)
}

func (f claimFD) close() {
	unix.Close(f.own)
	unix.Close(f.look)
}
