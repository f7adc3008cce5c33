//go:build linux && (amd64 || arm64)

package ntbivshmem

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbfixed"
	"golang.org/x/sys/unix"
)

// AttachFile returns an end at a file that both sides map: of a file system in memory, which
// containers have in common, of huge pages, or the one behind a machine's ivshmem-plain. Its size is
// that of the memory. There are no interrupts, so this side polls. Both sides must see the same memory at
// all times: they are of one machine, and none has the file by a network or another cache. That cannot be
// checked.
//
// The file is opened when a session is opened, and again if there is another one then. A file that
// becomes smaller ends the session.
//
// A process locks its end by a byte far behind the end of the file, where the file system has locks. So the other one knows
// whether it has ended, however long it says nothing. One that has the file as a PCI function has no lock.
func AttachFile(path string, place Place) (ntb.Attachment, error) {
	if err := place.check(); err != nil {
		return nil, err
	}
	return ntbfixed.Reattach(func(context.Context) (ntbfixed.Attached, error) { return attachFile(path, place) }), nil
}

// attachFile attaches the end of a place to the file that is there now.
func attachFile(path string, place Place) (_ ntbfixed.Attached, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return ntbfixed.Attached{}, fmt.Errorf("ntbivshmem: there is no memory (truncate -s 16M %s makes some): %w", path, err)
	}
	if err != nil {
		return ntbfixed.Attached{}, fmt.Errorf("ntbivshmem: %w", err)
	}
	defer func() {
		if err != nil {
			file.Close()
		}
	}()
	st, err := file.Stat()
	if err != nil {
		return ntbfixed.Attached{}, fmt.Errorf("ntbivshmem: %w", err)
	}
	if !st.Mode().IsRegular() {
		return ntbfixed.Attached{}, fmt.Errorf("ntbivshmem: %s is not a regular file: %w", path, syscall.EINVAL)
	}
	config := ntbfixed.Config{
		Kind: ntb.Cacheable, Backend: "file", Untrusted: true, Revocable: true, Zeros: true,
		Interrupt: func(uint32, int) {}, // nobody takes any
		Stop:      func() { file.Close() },
	}
	if err := place.memories(&config, int(file.Fd()), 0, st.Size()); err != nil {
		return ntbfixed.Attached{}, fmt.Errorf("ntbivshmem: %s: %w", path, err)
	}
	if config.Told, err = lockEnd(file, place.index(place.Own, place.Peer)); err != nil {
		return ntbfixed.Attached{}, fmt.Errorf("ntbivshmem: %s: %w", path, err)
	}
	config.Named = config.Told // an id of 0: the lock names it
	// A lock that was never seen may be in another kernel, as of a file that a virtual machine has from its host.
	var seen atomic.Bool
	config.Gone = func(uint32) (gone, known bool) {
		locked := isLocked(file, place.index(place.Peer, place.Own))
		if locked {
			seen.Store(true)
		}
		return !locked, seen.Load()
	}
	config.Former = func(uint32) bool { return config.Told } // this process has the lock that it had
	page, err := pageOf(file)
	if err != nil {
		return ntbfixed.Attached{}, fmt.Errorf("ntbivshmem: %s: %w", path, err)
	}
	if config.Own.Len%page != 0 || place.Heap%page != 0 {
		return ntbfixed.Attached{}, fmt.Errorf("ntbivshmem: %s has pages of %d bytes, and %d for each direction between places, want whole pages: %w",
			path, page, config.Own.Len, syscall.EINVAL)
	}
	inner, err := ntbfixed.Attach(config)
	if err != nil {
		return ntbfixed.Attached{}, fmt.Errorf("ntbivshmem: %s has %d bytes for %d places: %w", path, st.Size(), place.Places, err)
	}
	return ntbfixed.Attached{Attachment: inner, Window: config.Own.Len - ntbfixed.PageSize, Replaced: func() bool {
		now, err := os.Stat(path)
		return err != nil || !os.SameFile(st, now) || st.Size() != now.Size()
	}}, nil
}

// lockAt is where the bytes are that processes lock, one for each area, however long the file is.
const lockAt = 1 << 61

// lockEnd locks the end whose area has a number, until the file is closed. It reports false where the file
// system has no locks. The error wraps ntb.ErrInUse if another process has the end.
func lockEnd(file *os.File, area int) (bool, error) {
	switch err := unix.FcntlFlock(file.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Start: lockAt + int64(area), Len: 1}); err {
	case nil:
		return true, nil
	case unix.EAGAIN, unix.EACCES:
		return false, ntb.ErrInUse
	default:
		return false, nil
	}
}

// isLocked reports whether another open file has locked the end whose area has a number.
func isLocked(file *os.File, area int) bool {
	l := unix.Flock_t{Type: unix.F_WRLCK, Start: lockAt + int64(area), Len: 1}
	return unix.FcntlFlock(file.Fd(), unix.F_OFD_GETLK, &l) == nil && l.Type != unix.F_UNLCK
}

// pageOf returns the size of a file's pages. What is mapped of it begins with one.
func pageOf(file *os.File) (int, error) {
	var system unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &system); err != nil {
		return 0, err
	}
	if system.Type == unix.HUGETLBFS_MAGIC {
		return int(system.Bsize), nil
	}
	return ntbfixed.PageSize, nil
}
