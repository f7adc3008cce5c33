package hostdir

import (
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// watch is how a Dir learns that its directory, the claim file, or this process' socket is no
// longer where other processes look for it.
type watch struct {
	// Constant after Dir.Watch.
	lost  func(error)
	file  *os.File // of inotify; nil if there is no instance left, or Watch was not called
	looks bool     // some renames cause no event, so Lost looks
	own   owned

	ended chan struct{} // closed when read has returned; nil if file is
	once  sync.Once     // for tell
	err   atomic.Pointer[LostError]
}

// owned is what a process has in its directory, and others look for there.
type owned struct {
	claims int    // a descriptor of the claim file
	cable  string // name of the socket; "" before Listen
}

// Watch has lost called once, when the directory was removed, or is no longer what its path
// leads to, or the claim file or the socket of Listen is gone. That is at once, or, if the system has no inotify instance left for this user, when
// Lost is called next. lost must not call Close. Watch is called once, after Listen,
// and before the Dir is shared.
func (d *Dir) Watch(lost func(error)) {
	w := &d.watch
	w.lost, w.own = lost, owned{d.file.own, d.cable}
	w.file, w.looks = d.place.notify(w.own)
	if w.file == nil {
		return
	}
	if d.place.lost(w.own) { // before it was watched
		w.tell(d.place.path)
	}
	w.ended = make(chan struct{})
	go w.read(d.place)
}

// Lost returns a *LostError if the place is lost, and is known to be.
func (d *Dir) Lost() error {
	w := &d.watch
	if err := w.err.Load(); err != nil {
		return err
	}
	if !w.looks {
		return nil
	}
	d.mu.Lock()
	lost := !d.closed && d.place.lost(w.own)
	d.mu.Unlock()
	if !lost {
		return nil
	}
	w.tell(d.place.path)
	return w.err.Load()
}

// read waits for events until the place is lost, or stop is called. The directory and the claim
// file stay open as long as it runs.
func (w *watch) read(p *openPlace) {
	defer close(w.ended)
	defer w.file.Close()
	var events [4096]byte
	for w.err.Load() == nil {
		if _, err := w.file.Read(events[:]); err != nil {
			return
		}
		if p.lost(w.own) {
			w.tell(p.path)
		}
	}
}

// tell calls lost, unless it was called.
func (w *watch) tell(path string) {
	w.once.Do(func() {
		err := &LostError{path}
		w.err.Store(err)
		w.lost(err)
	})
}

// stop ends read.
func (w *watch) stop() {
	if w.file != nil {
		w.file.Close()
		<-w.ended
	}
}

// lost reports whether the directory was removed, or is no longer what its path leads to, or what
// a process has there is no longer in it. What cannot be found out counts as no.
func (p *openPlace) lost(own owned) bool {
	var mine, there unix.Stat_t
	if unix.Fstat(p.fd(), &mine) != nil {
		return false
	}
	if err := unix.Lstat(p.path, &there); err != nil || !same(&mine, &there) {
		return err == nil || err == unix.ENOENT || err == unix.ENOTDIR
	}
	// The event of a removal can come before the name is gone, but not before the link count.
	if own.cable != "" {
		err := unix.Fstatat(p.fd(), own.cable, &there, unix.AT_SYMLINK_NOFOLLOW)
		if err == unix.ENOENT || err == nil && there.Nlink == 0 {
			return true
		}
	}
	if unix.Fstat(own.claims, &mine) != nil {
		return false
	}
	if mine.Nlink == 0 {
		return true
	}
	err := unix.Fstatat(p.fd(), p.claimFile(), &there, unix.AT_SYMLINK_NOFOLLOW)
	return err == unix.ENOENT || err == nil && !same(&mine, &there)
}

// same reports whether two are of one file.
func same(a, b *unix.Stat_t) bool { return a.Dev == b.Dev && a.Ino == b.Ino }

// notify returns a file that has an event whenever the place may be lost: the socket is removed;
// the claim file is, which comes before the end of its directory; or the directory, one above it, or a link
// on the way, is renamed or removed. What others do in these directories is no event. The file is
// nil if there is no inotify instance left. looks is set if there may be no event, since this process
// may not watch all of them.
func (p *openPlace) notify(own owned) (events *os.File, looks bool) {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, true
	}
	watched := func(path string, mask uint32) bool {
		_, err := unix.InotifyAddWatch(fd, path, mask)
		return err == nil
	}
	const moved = unix.IN_MOVE_SELF | unix.IN_DELETE_SELF
	path := func(fd int) string { return "/proc/self/fd/" + strconv.Itoa(fd) }
	if !watched(path(own.claims), moved|unix.IN_ATTRIB) || !watched(path(p.fd()), moved) {
		unix.Close(fd)
		return nil, true
	}
	if own.cable != "" {
		looks = !watched(filepath.Join(path(p.fd()), own.cable), moved|unix.IN_ATTRIB|unix.IN_DONT_FOLLOW)
	}
	for dir := filepath.Dir(p.path); dir != "/"; dir = filepath.Dir(dir) {
		looks = !watched(dir, moved) || looks
		if _, err := os.Readlink(dir); err == nil {
			looks = !watched(dir, moved|unix.IN_ATTRIB|unix.IN_DONT_FOLLOW) || looks
		}
	}
	return os.NewFile(uintptr(fd), "inotify"), looks
}
