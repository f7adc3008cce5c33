package ntbshm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"syscall"

	"github.com/ntbnet/ntbnet/ntb"
)

// The one message that each side sends over the cable, little endian. The memory
// file and then the ringing ends of the doorbells go with it as SCM_RIGHTS:
//
//	 0  magic      8 bytes
//	 8  version    4 bytes; magic and version never move
//	12  flags      4 bytes, bit 0: registered with membarrier; bit 1: no half, see below
//	16  window     8 bytes: size of the sender's inbound window
//	24  doorbells  4 bytes: number of doorbells
//	28  zero       4 bytes
//
// A side that could not make its half sends the message without files, and then hangs up. Flag
// "no half" is set, window and doorbells are zero, and the last 4 bytes have Linux's error number, or 0.
const (
	messageMagic   = "ntb-shm\n"
	messageVersion = 2
	messageSize    = 32

	flagMembarrier = 1 << 0
	flagNoHalf     = 1 << 1

	maxErrno = 4095

	minWindow int64 = 64
	maxWindow int64 = 64 << 30
)

// message is the message without its files.
type message struct {
	membarrier bool
	window     int64
	doorbells  int
}

// noHalf encodes the message of a side that could not make its half because of err.
func noHalf(err error) []byte {
	b := message{}.encode()
	binary.LittleEndian.PutUint32(b[12:], flagNoHalf)
	var errno syscall.Errno
	if errors.As(err, &errno) {
		binary.LittleEndian.PutUint32(b[28:], uint32(errno))
	}
	return b
}

func (m message) encode() []byte {
	b := make([]byte, messageSize)
	copy(b, messageMagic)
	binary.LittleEndian.PutUint32(b[8:], messageVersion)
	if m.membarrier {
		binary.LittleEndian.PutUint32(b[12:], flagMembarrier)
	}
	binary.LittleEndian.PutUint64(b[16:], uint64(m.window))
	binary.LittleEndian.PutUint32(b[24:], uint32(m.doorbells))
	return b
}

// parseMessage accepts a message of this version and nothing else. It checks the version
// before the length, because another version may have another length.
func parseMessage(b []byte) (m message, err error) {
	if len(b) < 12 || string(b[:8]) != messageMagic {
		return m, fmt.Errorf("%w: %d bytes that are no message of ntbshm", ErrBadPeer, len(b))
	}
	if v := binary.LittleEndian.Uint32(b[8:]); v != messageVersion {
		return m, fmt.Errorf("%w: the peer has version %d, this side %d", ntb.ErrVersion, v, messageVersion)
	}
	if len(b) != messageSize {
		return m, fmt.Errorf("%w: message of %d bytes, want %d", ErrBadPeer, len(b), messageSize)
	}
	flags := binary.LittleEndian.Uint32(b[12:])
	window := binary.LittleEndian.Uint64(b[16:])
	doorbells := binary.LittleEndian.Uint32(b[24:])
	last := binary.LittleEndian.Uint32(b[28:])
	switch {
	case flags == flagNoHalf && window == 0 && doorbells == 0 && last <= maxErrno:
		why := errors.New("it does not say why")
		if last != 0 {
			why = syscall.Errno(last)
		}
		return m, &HalfError{Peer: true, Err: why}
	case flags&^flagMembarrier != 0:
		return m, fmt.Errorf("%w: flags %#x", ErrBadPeer, flags)
	case window < uint64(minWindow) || window > uint64(maxWindow) || window%64 != 0:
		return m, fmt.Errorf("%w: window of %d bytes", ErrBadPeer, window)
	case doorbells < 1 || doorbells > maxDoorbells:
		return m, fmt.Errorf("%w: %d doorbells", ErrBadPeer, doorbells)
	case last != 0:
		return m, fmt.Errorf("%w: bytes 28 to 31 are not zero", ErrBadPeer)
	}
	return message{
		membarrier: flags&flagMembarrier != 0,
		window:     int64(window),
		doorbells:  int(doorbells),
	}, nil
}
