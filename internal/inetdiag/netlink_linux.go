package inetdiag

import (
	"encoding/binary"
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// order is the byte order of netlink: the machine's.
var order = binary.NativeEndian

const (
	headerSize = unix.SizeofNlMsghdr
	answerRoom = 1 << 10  // for the answer to a question about one object
	dumpRoom   = 32 << 10 // for one datagram of a dump
)

// NewRequest begins a message. It returns the header, whose length is set when the
// message is sent, and size zero bytes.
func NewRequest(kind, flags uint16, size int) []byte {
	b := make([]byte, headerSize+size)
	order.PutUint16(b[4:], kind)
	order.PutUint16(b[6:], unix.NLM_F_REQUEST|flags)
	return b
}

// Netlink is a netlink socket. It belongs to the network namespace of the thread
// that opened it.
type Netlink int

// OpenNetlink opens a socket of a protocol, such as NETLINK_ROUTE.
func OpenNetlink(protocol int) (Netlink, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, protocol)
	if err != nil {
		return -1, fmt.Errorf("inetdiag: socket: %w", err)
	}
	return Netlink(fd), nil
}

// Close closes the socket.
func (c Netlink) Close() error { return unix.Close(int(c)) }

// Ask sends a message and calls answer with the payload of each message that comes
// back. If the kernel answers with an error, Ask returns that, with answered set. The
// kernel answers within send, so the receive does not wait. room is for one datagram.
func (c Netlink) Ask(message, room []byte, answer func(payload []byte) error) (answered bool, err error) {
	order.PutUint32(message, uint32(len(message)))
	if err := ignoringInterrupts(func() error { _, err := unix.Write(int(c), message); return err }); err != nil {
		return false, fmt.Errorf("inetdiag: send: %w", err)
	}
	dump := order.Uint16(message[6:])&unix.NLM_F_DUMP == unix.NLM_F_DUMP
	for {
		var n int
		err := ignoringInterrupts(func() (err error) {
			n, err = unix.Read(int(c), room)
			return err
		})
		if err != nil {
			return false, fmt.Errorf("inetdiag: receive: %w", err)
		}
		done, err := eachMessage(room[:n], answer)
		if err != nil || done || !dump {
			return true, err
		}
	}
}

// eachMessage calls answer with the payload of each message of a datagram. done
// reports that a dump has ended.
func eachMessage(b []byte, answer func(payload []byte) error) (done bool, err error) {
	for len(b) >= headerSize {
		size := int(order.Uint32(b))
		if size < headerSize || size > len(b) {
			return false, fmt.Errorf("inetdiag: message of %d bytes in %d: %w", size, len(b), syscall.EBADMSG)
		}
		payload := b[headerSize:size]
		switch order.Uint16(b[4:]) {
		case unix.NLMSG_DONE:
			return true, nil
		case unix.NLMSG_ERROR:
			if len(payload) < 4 {
				return false, fmt.Errorf("inetdiag: error of %d bytes: %w", len(payload), syscall.EBADMSG)
			}
			if code := int32(order.Uint32(payload)); code != 0 {
				return false, syscall.Errno(-code)
			}
		default:
			if err := answer(payload); err != nil {
				return false, err
			}
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return false, nil
}

func ignoringInterrupts(f func() error) error {
	for {
		if err := f(); err != unix.EINTR {
			return err
		}
	}
}
