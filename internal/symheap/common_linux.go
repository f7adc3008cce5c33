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
// (F_OFD_SETLK), which end with the process:
//
//   - The owner of a heap has its bytes locked for writing.
//   - Who has mapped it has the same bytes, mappedAt further on, locked for reading. The owner locks them for writing
//     until the heap has its token.
//
// So a heap begins where no process stores any more, also where a job before was killed amid puts. The locks are those
// of the open file, and of what is mapped of it.
const mappedAt = 1 << 62

// retryClaim is how often NewIn looks whether a process that ends has left its part.
const retryClaim = 10 * time.Millisecond

// NewIn makes a heap of zeros in the first free part of the n bytes of a file from off on. It waits for a part until ctx
// ends. Others can map the heap once it is returned. The file stays the caller's, and open as long as the heap is
// mapped. No other heap of this process may use the same descriptor.
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
func claim(f *os.File, at int64, size int, token uint64) (m *Memory, err error) {
	fd := int(f.Fd())
	if err := lockPart(fd, unix.F_WRLCK, at, size); err != nil {
		return nil, err
	}
	if err = lockPart(fd, unix.F_WRLCK, at+mappedAt, size); err == nil {
		if m, err = zeros(f, at, size); err == nil {
			m.Mark(token)
		}
		err = errors.Join(err, lockPart(fd, unix.F_UNLCK, at+mappedAt, size))
	}
	if err != nil {
		_ = lockPart(fd, unix.F_UNLCK, at, size)
		return nil, err
	}
	return m, nil
}

// zeros maps a part of a file, and has it hold zeros.
func zeros(f *os.File, at int64, size int) (*Memory, error) {
	fd := int(f.Fd())
	b, err := mapFile(fd, at, size)
	if err != nil {
		return nil, err
	}
	if unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, int64(size)) != nil {
		clear(b)
	}
	return &Memory{Bytes: b, file: f, at: at, maps: true, borrowed: true}, nil
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

// MapIn maps the heap of another PE, whose token it must have, from the same file as NewIn. The caller has checked that
// at is where there may be one.
func MapIn(f *os.File, at int64, size int, token uint64) (*Memory, error) {
	fd := int(f.Fd())
	if err := lockPart(fd, unix.F_RDLCK, at+mappedAt, size); err != nil {
		return nil, err
	}
	err := checkToken(fd, at, token)
	var b []byte
	if err == nil {
		b, err = mapFile(fd, at, size)
	}
	if err != nil {
		return nil, errors.Join(err, lockPart(fd, unix.F_UNLCK, at+mappedAt, size))
	}
	return &Memory{Bytes: b, maps: true}, nil
}
