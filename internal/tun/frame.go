package tun

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Sizes of frames, in bytes.
const (
	lengthSize = 4
	virtioSize = 10
	headSize   = lengthSize + virtioSize
	maxFrame   = 1 << 16
	maxBody    = maxFrame - lengthSize // what a length may be

	// maxMTU is the largest MTU, and the longest batch of segments. A frame of it fits a record of SDP.
	maxMTU = 65000
	minMTU = 1280 // IPv6 needs that
)

// Offloads are what a kernel does with packets that it reads from a TUN device, beyond plain ones.
type Offloads uint32

// Bits of Offloads.
const (
	offloadCsum Offloads = 1 << iota // checksums are made later
	offloadTSO                       // batches of TCP segments, over IPv4 and IPv6
	offloadUSO                       // batches of UDP datagrams, likewise
)

// hello is the first message of each side.
type hello struct {
	version  uint16
	mtu      uint32
	offloads Offloads // that the sender's kernel takes
}

// helloVersion is the version of hello and frames.
const helloVersion = 1

const (
	helloMagic = "sdp-tun\n"
	helloSize  = 24
)

func (h hello) encode() []byte {
	b := append(make([]byte, 0, helloSize), helloMagic...)
	b = binary.LittleEndian.AppendUint16(b, h.version)
	b = append(b, 0, 0)
	b = binary.LittleEndian.AppendUint32(b, h.mtu)
	b = binary.LittleEndian.AppendUint32(b, uint32(h.offloads))
	return binary.LittleEndian.AppendUint32(b, 0)
}

// decodeHello parses a hello of helloSize bytes. Of another version only magic and number count.
func decodeHello(b []byte) (hello, error) {
	if len(b) != helloSize || string(b[:8]) != helloMagic {
		return hello{}, errors.New("it is no sdp-tun")
	}
	h := hello{
		version:  binary.LittleEndian.Uint16(b[8:]),
		mtu:      binary.LittleEndian.Uint32(b[12:]),
		offloads: Offloads(binary.LittleEndian.Uint32(b[16:])),
	}
	if h.version != helloVersion {
		return h, fmt.Errorf("it has version %d of sdp-tun's frames, and this one %d", h.version, helloVersion)
	}
	return h, nil
}

// errFrame reports that a peer sent a length that no frame has.
var errFrame = errors.New("bad length of a frame")

// frames cuts a stream into frames.
type frames struct {
	begun []byte // the beginning of a frame whose end has not come
}

// next returns the body of the first frame of b, what follows it, and whether the frame was whole. If it was not, all of b is kept. A body is
// valid until the next call, and empty in a heartbeat.
func (f *frames) next(b []byte) (body, rest []byte, whole bool, err error) {
	if len(f.begun) == 0 {
		size, err := frameSize(b)
		if err != nil {
			return nil, nil, false, err
		}
		if len(b) >= size {
			return b[lengthSize:size], b[size:], true, nil
		}
	}
	// The length first, which says how much more belongs to the frame.
	for {
		size, err := frameSize(f.begun)
		if err != nil {
			return nil, nil, false, err
		}
		k := min(size-len(f.begun), len(b))
		f.begun, b = append(f.begun, b[:k]...), b[k:]
		if len(f.begun) < size {
			return nil, nil, false, nil
		}
		if size > lengthSize || f.begunLength() == 0 {
			body, f.begun = f.begun[lengthSize:], f.begun[:0]
			return body, b, true, nil
		}
	}
}

func (f *frames) begunLength() uint32 { return binary.LittleEndian.Uint32(f.begun) }

// frameSize returns how long a frame is that begins with b: lengthSize if that is not known yet.
func frameSize(b []byte) (int, error) {
	if len(b) < lengthSize {
		return lengthSize, nil
	}
	n := binary.LittleEndian.Uint32(b)
	if n > maxBody || 0 < n && n < virtioSize {
		return 0, fmt.Errorf("%w: %d", errFrame, n)
	}
	return lengthSize + int(n), nil
}
