package inetdiag

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

const (
	sockDiagByFamily = 20 // SOCK_DIAG_BY_FAMILY, the type of request and answer
	requestSize      = 56 // struct inet_diag_req_v2
	answerSize       = 72 // struct inet_diag_msg
	stateListen      = 10 // TCP_LISTEN
	noCookie         = 0xffffffff
)

// sourcePorts are the source ports of the imagined connection. Where several sockets
// share a port by SO_REUSEPORT, the kernel's choice depends on it.
const (
	firstSourcePort = 32768
	sourcePorts     = 28232
)

// Listening finds the socket to which the kernel would give a connection to an address
// of this machine, coming through an interface, as RouteTo returns it. It returns false
// if there is none. If several share the port by SO_REUSEPORT, it returns each with
// equal probability. An error means that the kernel cannot be asked.
func (k *Kernel) Listening(to netip.AddrPort, through int) (Listener, bool, error) {
	return k.ListeningFor(firstSourcePort+uint16(rand.IntN(sourcePorts)), to, through)
}

// ListeningFor is Listening for a connection from a port. As long as the same sockets share the port,
// it returns the same one, in all processes of the network namespace.
func (k *Kernel) ListeningFor(from uint16, to netip.AddrPort, through int) (Listener, bool, error) {
	s, ok, err := k.lookUp(from, to, through)
	if err == nil && !ok {
		err = works()
	}
	return s, ok, err
}

func (k *Kernel) lookUp(from uint16, to netip.AddrPort, through int) (Listener, bool, error) {
	asker := k.take()
	defer k.give(asker)
	a := Destination(to.Addr())
	if a.Is4() {
		through = loopbackIndex // connections of IPv4 to any address of the machine come through it
	}
	message := diagRequest(Family(a))
	binary.BigEndian.PutUint16(message[24:], to.Port())
	binary.BigEndian.PutUint16(message[26:], from)
	copy(message[28:], a.AsSlice())
	order.PutUint32(message[60:], uint32(through))
	var found answer
	err := asker.ask(diag, message, func(payload []byte) (err error) {
		found, err = parseAnswer(payload)
		return err
	})
	if errors.Is(err, syscall.ENOENT) {
		return Listener{}, false, nil
	}
	if err != nil || found.state != stateListen {
		return Listener{}, false, err
	}
	return Listener{Socket{Cookie: found.cookie, Namespace: asker.cookie}, int(found.uid)}, true, nil
}

const loopbackIndex = 1 // LOOPBACK_IFINDEX, in each namespace

// diagRequest asks for TCP sockets:
//
//	16   8  family, protocol, extensions, pad, states (a mask)
//	24   4  port here, port there, in network order
//	28  32  address here, address there
//	60  12  interface, cookie (all ones: any)
func diagRequest(family byte) []byte {
	b := NewRequest(sockDiagByFamily, 0, requestSize)
	b[16], b[17] = family, unix.IPPROTO_TCP
	order.PutUint32(b[20:], 1<<stateListen)
	order.PutUint32(b[64:], noCookie)
	order.PutUint32(b[68:], noCookie)
	return b
}

// answer is the part of struct inet_diag_msg that is read.
type answer struct {
	state  byte
	cookie uint64
	uid    uint32
	inode  uint32
}

func parseAnswer(b []byte) (answer, error) {
	if len(b) < answerSize {
		return answer{}, fmt.Errorf("inetdiag: answer of %d bytes: %w", len(b), syscall.EBADMSG)
	}
	// The cookie is two words, the lower half first, in either byte order.
	cookie := uint64(order.Uint32(b[44:])) | uint64(order.Uint32(b[48:]))<<32
	return answer{state: b[1], cookie: cookie, uid: order.Uint32(b[64:]), inode: order.Uint32(b[68:])}, nil
}
