package hostdir

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	claimPrefix = "claims-"
	idLen       = 32 // hexadecimal digits of a fabric's id
)

// claimFile finds the name of the claim file. If there is none and create is set,
// it makes the file. Of several processes that find none, the one with the lock on
// the directory makes it.
func claimFile(dir *os.File, create bool) (string, error) {
	name, err := findClaims(dir)
	if err != nil || name != "" {
		return name, err
	}
	if !create {
		return "", fmt.Errorf("fabric: claim file in %s: %w", dir.Name(), fs.ErrNotExist)
	}
	fd := int(dir.Fd())
	if err := flock(fd, unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("fabric: lock directory %s: %w", dir.Name(), err)
	}
	defer flock(fd, unix.LOCK_UN)
	name, err = findClaims(dir)
	if err != nil || name != "" {
		return name, err
	}
	var id [idLen / 2]byte
	_, _ = rand.Read(id[:]) // never fails
	name = claimPrefix + hex.EncodeToString(id[:])
	file, err := openat(fd, name, unix.O_RDWR|unix.O_CREAT|unix.O_EXCL)
	if err != nil {
		return "", fmt.Errorf("fabric: make %s/%s: %w", dir.Name(), name, err)
	}
	unix.Close(file)
	return name, nil
}

// findClaims returns the lexically first name of a claim file, or "".
func findClaims(dir *os.File) (string, error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return "", fmt.Errorf("fabric: read directory: %w", err)
	}
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return "", fmt.Errorf("fabric: read directory: %w", err)
	}
	first := ""
	for _, name := range names {
		if isClaims(name) && (first == "" || name < first) {
			first = name
		}
	}
	return first, nil
}

func isClaims(name string) bool {
	id, ok := strings.CutPrefix(name, claimPrefix)
	return ok && len(id) == idLen && strings.Trim(id, "0123456789abcdef") == ""
}

// openOwn opens a file of this user in the directory at. path is for messages. flags
// are O_CREAT or 0.
func openOwn(at int, path, name string, flags int) (int, error) {
	// O_NONBLOCK, because the name may not be that of a regular file.
	fd, err := openat(at, name, unix.O_RDWR|unix.O_NONBLOCK|flags)
	if err == unix.ELOOP {
		return -1, fmt.Errorf("fabric: %s/%s is a symbolic link, want a file: remove it: %w", path, name, syscall.EPERM)
	}
	if err != nil {
		return -1, fmt.Errorf("fabric: open %s/%s: %w", path, name, err)
	}
	var st unix.Stat_t
	if err = unix.Fstat(fd, &st); err == nil &&
		(st.Mode&unix.S_IFMT != unix.S_IFREG || int(st.Uid) != os.Geteuid()) {
		err = syscall.EPERM
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("fabric: %s/%s of uid %d is not a file of this user: remove it: %w", path, name, st.Uid, err)
	}
	return fd, nil
}

func flock(fd, how int) error {
	for {
		if err := unix.Flock(fd, how); err != unix.EINTR {
			return err
		}
	}
}

// lockBytes changes the locks of fd's open file on n bytes from start. n = 0 means
// all bytes from there on. If another open file has locked one of them, the error
// is EAGAIN.
func lockBytes(fd int, typ int16, start, n int64) error {
	l := unix.Flock_t{Type: typ, Whence: io.SeekStart, Start: start, Len: n}
	for {
		if err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &l); err != unix.EINTR {
			return err
		}
	}
}

// locked finds a byte, of n > 0 bytes from start, that an open file other than fd's
// has locked. If there are several, it need not be the first.
func locked(fd int, start, n int64) (at int64, ok bool, err error) {
	l := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: start, Len: n}
	for {
		err = unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &l)
		if err != unix.EINTR {
			break
		}
	}
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
