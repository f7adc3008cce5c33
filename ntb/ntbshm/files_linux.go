//go:build linux && (amd64 || arm64)

package ntbshm

import (
	"errors"
	"fmt"
	"io"

	"github.com/ntbnet/ntbnet/internal/shm/memfd"
	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/ntb"
	"golang.org/x/sys/unix"
)

// headerSize is the size of a memory file's header, before the window.
const headerSize = pageSize

// files are the descriptors of one side's memory and doorbells: the memory file
// first, then the ringing ends. The holder of the slice owns them.
type files []int

func (f files) close() {
	for _, fd := range f {
		unix.Close(fd)
	}
}

// makeFiles makes this side's files, and the waiting ends of its doorbells, which
// stay on this side. It touches no page of the memory.
func makeFiles(o Options) (f, waits files, err error) {
	defer func() {
		if err != nil {
			f.close()
			waits.close()
			f, waits = nil, nil
		}
	}()
	if err := tryBells(); err != nil {
		return nil, nil, err
	}
	mem, err := memfd.Create("ntbnet-window", headerSize+int64(o.Window))
	if err != nil {
		return f, waits, fmt.Errorf("ntbshm: %w", err)
	}
	f = append(f, mem)
	for range o.Doorbells {
		wait, ring, err := makeBell()
		if err != nil {
			return f, waits, err
		}
		f, waits = append(f, ring), append(waits, wait)
	}
	return f, waits, nil
}

// tryRoom returns an error if this process has no room for as much as its own half takes: descriptors, and
// a mapping. The peer's half is about as large, and comes when the peer believes that this half is there.
func tryRoom(f files, window int64) error {
	var room files
	defer func() { room.close() }()
	for range f {
		fd, err := unix.FcntlInt(uintptr(f[0]), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return fmt.Errorf("ntbshm: descriptors for the peer's files: %w", err)
		}
		room = append(room, fd)
	}
	mem, err := mapFile(f[0], window)
	if err != nil {
		return err
	}
	return unix.Munmap(mem)
}

// send sends the one message. The caller still owns the files.
func send(cable *unixsock.Conn, m message, f files) error {
	_, err := cable.WriteFiles(m.encode(), f...)
	if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) {
		return fmt.Errorf("ntbshm: send files: %w: %w", ntb.ErrLinkDown, err)
	}
	if err != nil {
		return fmt.Errorf("ntbshm: send files: %w", err)
	}
	return nil
}

// receive receives the peer's message and checks all of it. The caller owns the
// files.
func receive(cable *unixsock.Conn) (m message, f files, err error) {
	// There is room for a longer message of another version, so that it can be
	// distinguished from a good one.
	b := make([]byte, 4*messageSize)
	n, f, err := cable.ReadFiles(b, 1+maxDoorbells)
	defer func() {
		if err != nil {
			unixsock.Discard(cable.UID(), f...)
			f = nil
		}
	}()
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET):
		return m, f, fmt.Errorf("ntbshm: receive files: %w: %w", ntb.ErrLinkDown, err)
	case errors.Is(err, unixsock.ErrFiles):
		return m, f, fmt.Errorf("%w: %w", ErrBadPeer, err)
	case err != nil:
		return m, f, fmt.Errorf("ntbshm: receive files: %w", err)
	}
	if m, err = parseMessage(b[:n]); err != nil {
		return m, f, err
	}
	if len(f) != 1+m.doorbells {
		return m, f, fmt.Errorf("%w: %d files, want %d", ErrBadPeer, len(f), 1+m.doorbells)
	}
	if err := memfd.Check(f[0], headerSize+m.window); err != nil {
		return m, f, fmt.Errorf("%w: memory file: %w", ErrBadPeer, err)
	}
	for _, bell := range f[1:] {
		if err := checkBell(bell); err != nil {
			return m, f, err
		}
	}
	return m, f, nil
}

// mapFile maps a whole memory file. Outbound windows are mapped for reading as
// well, because these CPUs have no write-only pages. Core dumps have nothing of it: the kernel would make each page first.
func mapFile(fd int, window int64) ([]byte, error) {
	mem, err := unix.Mmap(fd, 0, int(headerSize+window), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("ntbshm: map window of %d bytes: %w", window, err)
	}
	_ = unix.Madvise(mem, unix.MADV_DONTDUMP)
	return mem, nil
}
