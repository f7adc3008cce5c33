package hostdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Limits of what is read of directories that belong to others, who may have put anything there.
const (
	foreignTime  = time.Second // for all fabrics of a user
	foreignBases = 1 << 16     // names in /tmp and /run/user
	foreignUsers = 1 << 10     // of those, that are of a user
	foreignNames = 1 << 12     // names in a directory of a user
)

// Foreign returns what names, modes and locks say of the fabrics of other users, for root. It follows no link
// and enters no other file system there, so that it ends whatever a user has put there. It changes nothing, and connects to
// nobody. What takes longer than a second for a user is left out, with an error.
func Foreign() []Foreigner { return foreign("/run/user", "/tmp", os.Geteuid(), foreignTime) }

func foreign(run, tmp string, self int, limit time.Duration) (all []Foreigner) {
	read := func(parent, prefix, below string) {
		users := 0
		for _, name := range namesIn(parent) {
			digits, ok := strings.CutPrefix(name, prefix)
			uid, err := strconv.Atoi(digits)
			if !ok || err != nil || strconv.Itoa(uid) != digits || uid == self {
				continue
			}
			base := filepath.Join(parent, name)
			if users++; users > foreignUsers {
				return
			}
			done := make(chan []Foreigner, 1) // a call of the kernel's that hangs keeps the goroutine alone
			go func() { done <- foreignBase(base, below, uid, time.Now().Add(limit)) }()
			select {
			case found := <-done:
				all = append(all, found...)
			case <-time.After(2 * limit):
				all = append(all, Foreigner{UID: uid, Path: filepath.Join(base, below), Err: os.ErrDeadlineExceeded})
			}
		}
	}
	read(run, "", "ntbnet")
	read(tmp, "ntbnet-", "")
	return all
}

// namesIn returns the first names in a directory of the system's.
func namesIn(path string) []string {
	dir, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(foreignBases) // as many as can be read
	slices.Sort(names)
	return names
}

// foreignBase reads the fabrics of a user in a directory, or in one below it.
func foreignBase(base, below string, uid int, until time.Time) (all []Foreigner) {
	dir, err := openForeign(unix.AT_FDCWD, base, unix.O_DIRECTORY, 0, uid)
	if err == nil && below != "" {
		outer := dir
		dir, err = openForeign(int(outer.Fd()), below, unix.O_DIRECTORY, unix.RESOLVE_NO_XDEV, uid)
		outer.Close()
		base = filepath.Join(base, below)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return []Foreigner{{UID: uid, Path: base, Err: err}}
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(foreignNames)
	slices.Sort(names)
	for _, name := range names {
		if checkName(name) != nil {
			continue
		}
		f := Foreigner{UID: uid, Name: name, Path: filepath.Join(base, name)}
		if f.Err = os.ErrDeadlineExceeded; time.Now().Before(until) {
			f.Err = f.read(dir, until)
		}
		if !errors.Is(f.Err, fs.ErrNotExist) { // it has just been removed
			all = append(all, f)
		}
	}
	return all
}

// read reads one directory.
func (f *Foreigner) read(base *os.File, until time.Time) error {
	dir, err := openForeign(int(base.Fd()), f.Name, unix.O_DIRECTORY, unix.RESOLVE_NO_XDEV, f.UID)
	if err != nil {
		return err
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(foreignNames)
	file, err := openForeign(int(dir.Fd()), Place{}.claimFile(), 0, unix.RESOLVE_NO_XDEV, f.UID)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer file.Close()
	c := newClaims(&timedLocks{fd: int(file.Fd()), until: until})
	if f.Processes, err = c.Processes(); err != nil {
		return err
	}
	if f.Holdings, err = c.holdings(); err != nil {
		return err
	}
	for _, name := range names {
		if n := (Place{}).cableOf(name); n != 0 && !slices.Contains(f.Processes, n) {
			f.Dead = append(f.Dead, filepath.Join(f.Path, name))
		}
	}
	f.Owner, _, err = c.Owner()
	return err
}

// openForeign opens a directory or regular file of a user without following a link.
func openForeign(at int, name string, flags int, resolve uint64, uid int) (*os.File, error) {
	how := &unix.OpenHow{
		Flags:   uint64(unix.O_RDONLY | unix.O_NONBLOCK | unix.O_NOCTTY | unix.O_NOFOLLOW | unix.O_CLOEXEC | flags),
		Resolve: resolve | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	fd, err := unix.Openat2(at, name, how)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	f := os.NewFile(uintptr(fd), name)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		f.Close()
		return nil, err
	}
	kind := uint32(unix.S_IFREG)
	if flags&unix.O_DIRECTORY != 0 {
		kind = unix.S_IFDIR
	}
	if st.Mode&unix.S_IFMT != kind || int(st.Uid) != uid || st.Mode&0o077 != 0 {
		f.Close()
		return nil, fmt.Errorf("%s has mode %04o and owner %d, want a private one of user %d: %w", name, st.Mode&0o7777, st.Uid, uid, syscall.EPERM)
	}
	return f, nil
}

// timedLocks looks at locks of a file until some time, and locks nothing.
type timedLocks struct {
	noLocks
	fd    int
	until time.Time
}

func (l *timedLocks) find(start, n int64) (int64, bool, error) {
	if time.Now().After(l.until) {
		return 0, false, os.ErrDeadlineExceeded
	}
	return locked(l.fd, start, n)
}
