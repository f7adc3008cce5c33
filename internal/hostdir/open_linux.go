package hostdir

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/ntbnet/ntbnet/internal/lock"
)

// Dir is this process's place in the directory of a local fabric. Its methods may
// be called from several goroutines at the same time. A process may open several,
// which count as different processes.
type Dir struct {
	path string // immutable
	id   string // immutable; 32 hexadecimal digits

	mu lock.Mutex[lock.Dir]
	// mu guards the following.
	file   claimFD
	closed bool
	claims // locks are file
}

// Own returns the directory that has those of this user. It depends only on the system
// and the uid, so that a shell and a cron job find each other.
func Own() string { return baseDir("/run/user", "/tmp", os.Geteuid()) }

// baseDir returns the directory of a user's fabrics. It depends only on the system
// and the uid, so that a shell and a cron job find each other.
func baseDir(run, tmp string, uid int) string {
	dir := filepath.Join(run, strconv.Itoa(uid))
	var st unix.Stat_t
	if unix.Lstat(dir, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == uid {
		return filepath.Join(dir, "ntbnet")
	}
	return filepath.Join(tmp, "ntbnet-"+strconv.Itoa(uid))
}

// Open opens the directory of a host by its name in base, and creates both if they do
// not exist and create is set; if it is not, the error wraps fs.ErrNotExist. If one of
// them is not private to this user, the error wraps EPERM or EACCES and says what to do.
// It wraps EPERM also if other users may have this process' uid.
func Open(base, name string, create bool) (*Dir, error) {
	dir, err := openPlace(base, name, create)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	path := dir.Name()
	file, err := claimFile(dir, create)
	if err != nil {
		return nil, err
	}
	var f claimFD
	if f.own, err = openOwn(int(dir.Fd()), path, file, 0); err != nil {
		return nil, err
	}
	if f.look, err = openOwn(int(dir.Fd()), path, file, 0); err != nil {
		unix.Close(f.own)
		return nil, err
	}
	return &Dir{path: path, id: file[len(claimPrefix):], file: f, claims: newClaims(f)}, nil
}

// openPlace opens the directory of a fabric. If it does not exist and create is
// set, openPlace makes it. If the directory is not private to this user, openPlace
// returns an error.
func openPlace(base, name string, create bool) (*os.File, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	if err := checkUser(); err != nil {
		return nil, err
	}
	baseFD, err := privateDir(unix.AT_FDCWD, base, base, create)
	if err != nil {
		return nil, err
	}
	defer unix.Close(baseFD)
	path := filepath.Join(base, name)
	fd, err := privateDir(baseFD, name, path, create)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// privateDir opens directory name in the directory at. If it does not exist and create is
// set, privateDir makes it. If it is not private to this user, privateDir returns an error.
// It checks what it has opened, so the directory cannot be replaced in between.
func privateDir(at int, name, path string, create bool) (int, error) {
	if create {
		if err := unix.Mkdirat(at, name, 0o700); err != nil && err != unix.EEXIST {
			return -1, fmt.Errorf("fabric: make directory %s: %w", path, err)
		}
	}
	var st unix.Stat_t
	fd, err := openat(at, name, unix.O_RDONLY|unix.O_DIRECTORY)
	if err != nil {
		// The error says what is wrong with the directory rather than which call
		// failed.
		if unix.Fstatat(at, name, &st, unix.AT_SYMLINK_NOFOLLOW) == nil {
			if err := checkPrivate(&st, path); err != nil {
				return -1, err
			}
		}
		return -1, fmt.Errorf("fabric: open directory %s: %w", path, err)
	}
	if err = unix.Fstat(fd, &st); err == nil {
		err = checkPrivate(&st, path)
	}
	if err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// checkPrivate refuses everything but a directory of this user that no other user
// can enter.
func checkPrivate(st *unix.Stat_t, path string) error {
	uid := os.Geteuid()
	switch {
	case int(st.Uid) != uid:
		return fmt.Errorf("fabric: %s belongs to uid %d, and this process is uid %d: have it removed, or use a fabric of your own: %w",
			path, st.Uid, uid, syscall.EPERM)
	case st.Mode&unix.S_IFMT == unix.S_IFLNK:
		return fmt.Errorf("fabric: %s of uid %d is a symbolic link, want a directory: remove it: %w",
			path, st.Uid, syscall.EPERM)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR:
		return fmt.Errorf("fabric: %s of uid %d is not a directory: remove it: %w",
			path, st.Uid, syscall.EPERM)
	case st.Mode&0o777 != 0o700:
		return fmt.Errorf("fabric: %s of uid %d has mode %#o, want 0700: chmod 700 it if only you have used it: %w",
			path, st.Uid, st.Mode&0o777, syscall.EPERM)
	}
	return nil
}

// openat opens name in the directory at. It follows no link, and continues after
// signals.
func openat(at int, name string, flags int) (int, error) {
	for {
		fd, err := unix.Openat(at, name, flags|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0o600)
		if err != unix.EINTR {
			return fd, err
		}
	}
}

// ID identifies the fabric. It has 32 hexadecimal digits, the same for all its
// processes.
func (d *Dir) ID() string { return d.id }

// Path returns the path of the fabric's directory.
func (d *Dir) Path() string { return d.path }

// Close drops all claims. It may be called twice. Listeners and cables stay
// open.
func (d *Dir) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed {
		return nil
	}
	// A child process that is just being started shares the open file until it runs
	// its program. So closing alone might leave the locks for a moment.
	err := d.file.unlock(0, 0)
	d.file.close()
	d.closed, d.claims = true, newClaims(d.file)
	if err != nil {
		return fmt.Errorf("fabric: drop claims: %w", err)
	}
	return nil
}
