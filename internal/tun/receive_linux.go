package tun

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/sdp"
)

// errFrame reports that a peer sent a length that no frame has.
var errFrame = errors.New("bad length of a frame")

// receiver hands the packets of a peer to the kernel.
type receiver struct {
	conn    *sdp.Conn
	sources []netip.Prefix
	write   func(frame []byte) error // device.write
	count   *counters
	heard   atomic.Uint64 // grows while the peer sends, for sender.tick
	beat    func()        // if not nil, answers a heartbeat
}

// run receives until the connection fails, or the peer sends what is no frame.
func (r *receiver) run() error {
	b := make([]byte, 2*maxFrame)
	for kept := 0; ; {
		n, err := r.conn.Read(b[kept:])
		if err != nil {
			return err
		}
		r.heard.Add(1)
		rest, err := r.take(b[:kept+n])
		if err != nil {
			return err
		}
		kept = copy(b, rest)
	}
}

// take delivers the packets of the frames of b, and returns what is left: the beginning of a frame at most.
func (r *receiver) take(b []byte) (rest []byte, err error) {
	for len(b) >= lengthSize {
		n := binary.LittleEndian.Uint32(b)
		if n > maxBody || 0 < n && n < virtioSize {
			return nil, fmt.Errorf("%w: %d", errFrame, n)
		}
		end := lengthSize + int(n)
		if len(b) < end {
			break
		}
		if n > 0 {
			if err := r.deliver(b[lengthSize:end]); err != nil {
				return nil, err
			}
		} else if r.beat != nil {
			r.beat()
		}
		b = b[end:]
	}
	return b, nil
}

// deliver hands a packet to the kernel, if the peer may send it. What the kernel refuses is counted.
func (r *receiver) deliver(body []byte) error {
	p, err := parsePacket(body[virtioSize:])
	switch {
	case err != nil || !checkVirtio(body, body[virtioSize:], p):
		r.count.malformed.Add(1)
		return nil
	case !p.linkLocal() && !slices.ContainsFunc(r.sources, func(s netip.Prefix) bool { return s.Contains(p.src) }):
		r.count.source.Add(1)
		return nil
	}
	if err := r.write(body); err != nil {
		r.count.kern.Add(1)
		if err == errGone {
			return err
		}
		return nil
	}
	r.count.rxPackets.Add(1)
	r.count.rxBytes.Add(uint64(len(body) - virtioSize))
	return nil
}
