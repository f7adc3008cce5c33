//go:build linux && (amd64 || arm64)

package ntbshm

import (
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/ntbnet/ntbnet/ntb"
	"golang.org/x/sys/unix"
)

// headerSize is the bytes of a memory file before the window.
const headerSize = pageSize

// wantSeals keep the size of a memory file, and the seals themselves.
const wantSeals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// files are the descriptors of one side's memory and doorbells: the memory file
// first, then the eventfds. Whoever holds the slice owns them.
type files []int

func (f files) close() {
	for _, fd := range f {
		unix.Close(fd)
	}
}

// makeFiles makes this side's files. No page of the memory is touched.
func makeFiles(o Options) (f files, err error) {
	defer func() {
		if err != nil {
			f.close()
			f = nil
		}
	}()
	mem, err := unix.MemfdCreate("ntbnet-window", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return f, fmt.Errorf("ntbshm: make memory file: %w", err)
	}
	f = append(f, mem)
	if err := unix.Ftruncate(mem, headerSize+int64(o.Window)); err != nil {
		return f, fmt.Errorf("ntbshm: size memory file: %w", err)
	}
	if _, err := unix.FcntlInt(uintptr(mem), unix.F_ADD_SEALS, wantSeals); err != nil {
		return f, fmt.Errorf("ntbshm: seal memory file: %w", err)
	}
	for range o.Doorbells {
		bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return f, fmt.Errorf("ntbshm: make doorbell: %w", err)
		}
		f = append(f, bell)
	}
	return f, nil
}

// send sends the one message. It does not take the files.
func send(cable *net.UnixConn, h hello, f files) error {
	b := h.encode()
	n, _, err := cable.WriteMsgUnix(b, unix.UnixRights(f...), nil)
	if err == nil && n != len(b) {
		err = io.ErrShortWrite
	}
	if err != nil {
		return fmt.Errorf("ntbshm: send files: %w", err)
	}
	return nil
}

// receive takes the peer's message and checks all of it. The caller owns the
// files.
func receive(cable *net.UnixConn) (h hello, f files, err error) {
	// Room for a longer message of another version, and for one file too many,
	// so that both are told apart from a good one. What more the peer sends
	// the kernel drops, files included.
	b := make([]byte, 4*helloSize)
	oob := make([]byte, unix.CmsgSpace(4*(1+maxDoorbells+1)))
	n, oobn, flags, _, err := cable.ReadMsgUnix(b, oob)
	f, oobErr := rights(oob[:oobn])
	defer func() {
		if err != nil {
			f.close()
			f = nil
		}
	}()
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
		return h, f, fmt.Errorf("ntbshm: receive files: %w: %w", ntb.ErrLinkDown, err)
	}
	if err != nil {
		return h, f, fmt.Errorf("ntbshm: receive files: %w", err)
	}
	if h, err = parseHello(b[:n]); err != nil {
		return h, f, err
	}
	if oobErr != nil {
		return h, f, fmt.Errorf("%w: control message: %w", ErrBadPeer, oobErr)
	}
	if flags&unix.MSG_CTRUNC != 0 || len(f) != 1+h.doorbells {
		return h, f, fmt.Errorf("%w: %d files or more, want %d", ErrBadPeer, len(f), 1+h.doorbells)
	}
	if err := checkMemory(f[0], headerSize+h.window); err != nil {
		return h, f, err
	}
	for _, bell := range f[1:] {
		if err := checkDoorbell(bell); err != nil {
			return h, f, err
		}
	}
	return h, f, nil
}

// rights takes all descriptors out of the control messages. The descriptors are
// returned with an error, too, because they are open by then.
func rights(oob []byte) (f files, err error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	for i := range msgs {
		fds, e := unix.ParseUnixRights(&msgs[i])
		f = append(f, fds...)
		if err == nil {
			err = e
		}
	}
	return f, err
}

// checkMemory refuses a file that a mapping of size bytes could make this
// process fault on: one that can shrink, or whose pages cannot be had.
func checkMemory(fd int, size int64) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("ntbshm: stat the peer's memory: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFREG {
		return fmt.Errorf("%w: memory is not a regular file", ErrBadPeer)
	}
	if st.Size != size {
		return fmt.Errorf("%w: memory of %d bytes, want %d", ErrBadPeer, st.Size, size)
	}
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&wantSeals != wantSeals {
		return fmt.Errorf("%w: memory is not sealed (seals %#x)", ErrBadPeer, seals)
	}
	// A file of huge pages can be sealed as well, and faults where none is free.
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		return fmt.Errorf("%w: memory is not of ordinary pages", ErrBadPeer)
	}
	return nil
}

// checkDoorbell refuses what is not a nonblocking eventfd, such as a pipe that
// would block, or kill with SIGPIPE. Of the files that are neither on a file
// system nor sockets, only an eventfd takes 8 bytes; zero adds nothing to it.
func checkDoorbell(fd int) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("ntbshm: stat the peer's doorbell: %w", err)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || st.Mode&unix.S_IFMT != 0 || flags&unix.O_NONBLOCK == 0 {
		return fmt.Errorf("%w: doorbell is not a nonblocking eventfd", ErrBadPeer)
	}
	var zero [8]byte
	for {
		n, err := unix.Write(fd, zero[:])
		if err == unix.EINTR {
			continue
		}
		if n != len(zero) {
			return fmt.Errorf("%w: doorbell is not an eventfd: %w", ErrBadPeer, err)
		}
		return nil
	}
}

// mapFile maps a whole memory file. Outbound windows are mapped to be read as
// well, because these CPUs have no pages that can only be written.
func mapFile(fd int, window int64) ([]byte, error) {
	mem, err := unix.Mmap(fd, 0, int(headerSize+window), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("ntbshm: map window of %d bytes: %w", window, err)
	}
	return mem, nil
}
