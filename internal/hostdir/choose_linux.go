package hostdir

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// home is where a user's fabrics are: in the session's directory, or in the temporary one where
// there is no session.
type home struct {
	uid     int
	session string // of this user; it may come and go
	base    string // in session
	tmp     string // the base elsewhere
}

func homeOf(run, tmp string, uid int) home {
	session := filepath.Join(run, strconv.Itoa(uid))
	return home{uid, session, filepath.Join(session, "ntbnet"), filepath.Join(tmp, "ntbnet-"+strconv.Itoa(uid))}
}

func ownHome() home { return homeOf("/run/user", "/tmp", os.Geteuid()) }

// hasSession reports whether the session's directory is there.
func (h home) hasSession() bool {
	var st unix.Stat_t
	return unix.Lstat(h.session, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFDIR && int(st.Uid) == h.uid
}

// Find returns the directory that has those of this user's fabric, which are called names. It depends
// on the system and the uid alone, so that a shell and a cron job find each other. The exception is
// where processes are that started before the session's directory was made, if none is in that.
func Find(names ...string) string { return ownHome().find(names) }

func (h home) find(names []string) string {
	if h.hasSession() && (!lives(h.tmp, names) || lives(h.base, names)) {
		return h.base
	}
	return h.tmp
}

// Choose returns Find for a process that is to join the fabric. Other processes of the user that
// choose wait until decided is called, which is when this one has claimed its number. So all
// choose the same. If another process does not decide, the error wraps ErrLocked.
func Choose(names ...string) (base string, decided func(), err error) {
	if err := CheckUser(); err != nil {
		return "", nil, err
	}
	return ownHome().choose(names)
}

// choose is Choose. A process that finds no session makes the temporary directory before it looks
// again. One that finds a session and no temporary directory is therefore seen by all that come
// to it later.
func (h home) choose(names []string) (base string, decided func(), err error) {
	begins := !h.hasSession()
	fd, err := privateDir(unix.AT_FDCWD, h.tmp, h.tmp, begins)
	switch {
	case err == nil:
	case begins:
		return h.tmp, func() {}, nil // to open it has the same error, or finds the session
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.EPERM):
		return h.base, func() {}, nil // no process of this user is there
	default:
		return "", nil, denied(err)
	}
	dir := &openPlace{Place: Place{path: h.tmp}, dir: os.NewFile(uintptr(fd), h.tmp)}
	if err := dir.lock(unix.LOCK_EX, chooseLimit); err != nil {
		dir.close()
		return "", nil, denied(err)
	}
	return h.find(names), dir.close, nil
}

// lives reports whether a process has claimed anything in directories of these names in base.
func lives(base string, names []string) bool {
	for _, name := range names {
		place, err := In(base, name).open(false)
		if err != nil {
			continue
		}
		used := place.used()
		place.close()
		if used {
			return true
		}
	}
	return false
}

// used reports whether a process has claimed anything.
func (p *openPlace) used() bool {
	names, _ := p.names()
	for _, name := range names {
		if p.claimVersion(name) != 0 && p.isLocked(name) {
			return true
		}
	}
	return false
}

// Bases returns the directories that may have those of this user's fabrics.
func Bases() []string { return ownHome().bases() }

func (h home) bases() []string {
	if !h.hasSession() {
		return []string{h.tmp}
	}
	fd, err := privateDir(unix.AT_FDCWD, h.tmp, h.tmp, false)
	if err != nil {
		return []string{h.base}
	}
	unix.Close(fd)
	return []string{h.base, h.tmp}
}
