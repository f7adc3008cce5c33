package tun

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
	"golang.org/x/sys/unix"
)

// receiver hands the packets of a peer to the kernel.
type receiver struct {
	conn    *sdp.Conn
	sources []netip.Prefix
	write   func(frame []byte) error // device.write
	count   *counters
	frames  frames
}

// errSilent reports that a peer sends nothing any more. Its process may be stopped.
var errSilent = errors.New("nothing is heard of it")

// run receives until the connection fails, the peer is silent, or it sends what is no frame.
func (r *receiver) run() error {
	for misses, heard := 0, true; ; {
		b, err := r.conn.Peek()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			misses++
			if heard {
				misses = 0
			}
			if misses >= silence {
				return errSilent
			}
			heard = false
			err = r.conn.SetReadDeadline(time.Now().Add(heartbeat))
		}
		if err != nil {
			return err
		}
		if b == nil {
			continue
		}
		heard = true
		err = r.take(b)
		r.conn.Discard(len(b))
		if err != nil {
			return err
		}
	}
}

// take takes the frames of b apart.
func (r *receiver) take(b []byte) error {
	for len(b) > 0 {
		body, rest, whole, err := r.frames.next(b)
		if err != nil {
			return err
		}
		if b = rest; whole && len(body) > 0 {
			if err := r.deliver(body); err != nil {
				return err
			}
		}
	}
	return nil
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
		if err == unix.EBADFD { // the device was removed
			return err
		}
		return nil
	}
	r.count.rxPackets.Add(1)
	r.count.rxBytes.Add(uint64(len(body) - virtioSize))
	return nil
}
