package symheap

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Heaps in a memory that many processes have in common, a file, find their place there by locks of the file
// (F_OFD_SETLK), which end with the process. The owner locks the bytes of its heap for writing until the heap has its token.
// From then on the owner, and each process that maps it, has them locked for reading.
//
// So a heap begins where no process stores any more, also where a job before was killed amid puts. The locks are those
// of the open file, and of what is mapped of it.

// retryClaim is how often NewIn looks whether a process that ends has left its part.
const retryClaim = 10 * time.Millisecond

// NewIn makes a heap of zeros in the first free part of the n bytes of a file from off on. It waits for a part until ctx
// ends. Others can map the heap once it is returned. The heap owns the file, which no other heap of this process may have.
// Where there is an error, the caller closes the file.
func NewIn(ctx context.Context, f *os.File, off int64, n, size int, token uint64) (*Memory, error) {
	for {
		for at := off; at+int64(size) <= off+int64(n); at += int64(size) {
			m, err := claim(f, at, size, token)
			if err != errTaken {
				return m, err
			}
		}
		select {
		case <-time.After(retryClaim):
		case <-ctx.Done():
			return nil, fmt.Errorf("memory for heaps of %d bytes: all %d parts are in use, by PEs of this job or another: %w", size, n/size, ctx.Err())
		}
	}
}

// errTaken reports that another process uses a part of a file.
var errTaken = errors.New("another process uses it")

// claim makes a heap of a part of a file that nobody uses.
func claim(f *os.File, at int64, size int, token uint64) (*Memory, error) {
	fd := int(f.Fd())
	if err := lockPart(fd, unix.F_WRLCK, at, size); err != nil {
		return nil, err
	}
	b, err := mapFile(fd, at, size)
	if err != nil {
		return nil, err
	}
	if unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, int64(size)) != nil {
		clear(b)
	}
	m := &Memory{Bytes: b, file: f, at: at, maps: true}
	m.mark(token)
	return m, lockPart(fd, unix.F_RDLCK, at, size)
}

// lockPart locks a part of a file without waiting, or unlocks it.
func lockPart(fd int, how int16, at int64, size int) error {
	err := unix.FcntlFlock(uintptr(fd), unix.F_OFD_SETLK, &unix.Flock_t{Type: how, Start: at, Len: int64(size)})
	switch err {
	case nil:
		return nil
	case unix.EAGAIN, unix.EACCES:
		return errTaken
	}
	return fmt.Errorf("lock a part of the memory for heaps: %w", err)
}

// MapIn maps the heap of another PE, whose token it must have, from the file of NewIn. The caller has checked that at is
// where there may be one.
func MapIn(f *os.File, at int64, size int, token uint64) (*Memory, error) {
	fd := int(f.Fd())
	if err := checkToken(fd, at, token); err != nil { // which may be within this process' own heap
		return nil, err
	}
	if err := lockPart(fd, unix.F_RDLCK, at, size); err != nil {
		return nil, err
	}
	m, err := mapHeap(fd, at, size, token)
	if err != nil {
		return nil, errors.Join(err, lockPart(fd, unix.F_UNLCK, at, size))
	}
	return m, nil
}
