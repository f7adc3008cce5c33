//go:build linux && (amd64 || arm64)

package ntbkernel

import (
	"os"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests, flags and structures of linux/ntb_cdev.h.
const (
	getInfo   = 0xbe00 + iota // NTB_CDEV_GET_INFO
	setEvents                 // NTB_CDEV_SET_EVENTS
	ring                      // NTB_CDEV_RING
)

const (
	infoLinkUp = 1 << iota
	infoReady
	infoWriteCombining
	infoGone
	infoNoWindow
	infoPeerNoWindow
)

type deviceInfo struct {
	argsz, flags, generation, peerWord, node, doorbells uint32

	ownOffset, ownSize, peerOffset, peerSize uint64
}

type eventSet struct {
	argsz, flags, start, count uint32
	files                      [1 + maxDoorbells]int32
}

// node is an open device node. It implements port.
type node struct {
	file *os.File
	conn syscall.RawConn
	fd   int
}

func openNode(s system, address string) (*node, error) {
	file, err := s.open(address)
	if err != nil {
		return nil, err
	}
	conn, err := file.SyscallConn()
	if err != nil {
		file.Close()
		return nil, err
	}
	return &node{file: file, conn: conn, fd: int(file.Fd())}, nil
}

// ioctl passes a number. The descriptor stays that of the node meanwhile.
func (n *node) ioctl(request, arg uintptr) error {
	var errno syscall.Errno
	if err := n.conn.Control(func(fd uintptr) { _, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, request, arg) }); err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// pass passes a structure, which the kernel may change.
func pass[T any](n *node, request uintptr, arg *T) error {
	var errno syscall.Errno
	err := n.conn.Control(func(fd uintptr) {
		_, _, errno = unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(arg)))
	})
	if err == nil && errno != 0 {
		err = errno
	}
	return err
}

func (n *node) state() (State, error) {
	i := deviceInfo{argsz: uint32(unsafe.Sizeof(deviceInfo{}))}
	if err := pass(n, getInfo, &i); err != nil {
		return State{}, os.NewSyscallError("ioctl NTB_CDEV_GET_INFO", err)
	}
	return State{
		LinkUp: i.flags&infoLinkUp != 0, Ready: i.flags&infoReady != 0, Gone: i.flags&infoGone != 0,
		NoWindow: i.flags&infoNoWindow != 0, PeerNoWindow: i.flags&infoPeerNoWindow != 0,
		Node: int(i.node), Peer: i.peerWord,
		combining: i.flags&infoWriteCombining != 0, generation: i.generation, doorbells: int(i.doorbells),
		ownOffset: i.ownOffset, ownSize: i.ownSize, peerOffset: i.peerOffset, peerSize: i.peerSize,
	}, nil
}

func (n *node) setEvents(files []int32) error {
	s := eventSet{argsz: uint32(unsafe.Offsetof(eventSet{}.files)) + uint32(4*len(files)), count: uint32(len(files))}
	copy(s.files[:], files)
	return os.NewSyscallError("ioctl NTB_CDEV_SET_EVENTS", pass(n, setEvents, &s))
}

func (n *node) ring(bell int) error { return n.ioctl(ring, uintptr(bell)) }

func (n *node) descriptor() int { return n.fd }

func (n *node) close() error { return n.file.Close() }
