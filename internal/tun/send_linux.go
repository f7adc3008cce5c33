package tun

import (
	"encoding/binary"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
	"golang.org/x/sys/unix"
)

const (
	// patience is how long a sender waits for room at a time. Meanwhile packets wait in the kernel's ring, which
	// drops what is too much.
	patience = time.Millisecond

	// batch is how many packets are taken into the queue before one is sent.
	batch = 16

	// heartbeat is how often something is sent at the least, and silence after how many of those times a peer is gone
	// that sends nothing.
	heartbeat = 200 * time.Millisecond
	silence   = 4
)

// sender sends what comes out of a device to a peer, while there is a connection.
type sender struct {
	conn  *sdp.Conn
	dev   *device
	queue *Queue
	stop  *atomic.Bool // with dev.interrupt
	count *counters

	start   time.Time
	spill   []byte // the end of a packet that does not fit into what Reserve lends
	staging *entry // into which packets are read that wait
	sending *entry // of which rest is a part, or nil
	rest    []byte // what is to be sent of a frame that has begun
	beat    time.Time
}

func newSender(conn *sdp.Conn, dev *device, queue *Queue, stop *atomic.Bool, count *counters) *sender {
	return &sender{
		conn: conn, dev: dev, queue: queue, stop: stop, count: count,
		start: time.Now(), spill: make([]byte, maxFrame), staging: queue.buffer(maxFrame),
	}
}

// run sends until the connection or the device fails, or stop is true. A frame that is being sent then is lost.
func (s *sender) run() (err error) {
	for err == nil && !s.stop.Load() {
		if len(s.rest) > 0 || s.queue.Bytes() > 0 {
			err = s.relieve()
		} else {
			err = s.direct()
		}
	}
	return err
}

// direct sends packets while nothing waits: the kernel writes each to where it goes. It returns when a packet must wait.
func (s *sender) direct() error {
	for !s.stop.Load() {
		b, err := s.reserve(maxFrame)
		if err != nil || b == nil {
			if err == nil {
				err = s.fill()
			}
			return err
		}
		if len(b) < 2*headSize {
			s.conn.Commit(0)
			if err := s.idle(); err != nil {
				return err
			}
			return s.fill()
		}
		n, err := s.dev.read(b[lengthSize:], s.spill)
		if err == unix.EAGAIN {
			s.conn.Commit(0)
			if err := s.idle(); err != nil || len(s.rest) > 0 {
				return err
			}
			continue
		}
		if err != nil || n < virtioSize || lengthSize+n > maxFrame {
			s.conn.Commit(0)
			if err != nil {
				return err
			}
			continue
		}
		binary.LittleEndian.PutUint32(b, uint32(n))
		s.sent(n)
		n += lengthSize
		s.conn.Commit(min(n, len(b)))
		if n > len(b) {
			s.rest = s.spill[:n-len(b)]
			return nil
		}
	}
	return nil
}

// relieve takes packets into the queue, and sends a frame of it, as far as there is room soon.
func (s *sender) relieve() error {
	if err := s.fill(); err != nil {
		return err
	}
	if len(s.rest) == 0 {
		if s.sending = s.queue.pop(time.Since(s.start)); s.sending == nil {
			return nil
		}
		s.rest = s.sending.b
		s.sent(len(s.rest) - lengthSize)
	}
	for len(s.rest) > 0 {
		b, err := s.reserve(len(s.rest))
		if err != nil || b == nil {
			return err
		}
		n := copy(b, s.rest)
		s.conn.Commit(n)
		s.rest = s.rest[n:]
	}
	if s.sending != nil {
		s.queue.release(s.sending)
		s.sending = nil
	}
	return nil
}

// fill takes packets into the queue, a batch at most.
func (s *sender) fill() error {
	for range batch {
		n, err := s.dev.read(s.staging.b[lengthSize:])
		if err == unix.EAGAIN {
			break
		}
		if err != nil {
			return err
		}
		if n < virtioSize {
			continue
		}
		binary.LittleEndian.PutUint32(s.staging.b, uint32(n))
		n += lengthSize
		e := s.staging
		if n > maxFrame/2 {
			s.staging = s.queue.buffer(maxFrame)
		} else {
			e = s.queue.buffer(n)
			copy(e.b, s.staging.b[:n])
		}
		e.b = e.b[:n]
		s.queue.push(e, time.Since(s.start))
	}
	s.count.queued.Store(int64(s.queue.Bytes()))
	s.count.overflows.Store(s.queue.Overflows)
	s.count.late.Store(s.queue.Late)
	return nil
}

// reserve is sdp.Conn.Reserve that returns nil if there is no room soon.
func (s *sender) reserve(n int) ([]byte, error) {
	for range 2 { // the deadline may be an old one
		b, err := s.conn.Reserve(n)
		if err == nil || !errors.Is(err, os.ErrDeadlineExceeded) {
			return b, err
		}
		if err := s.conn.SetWriteDeadline(time.Now().Add(patience)); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// sent counts a frame.
func (s *sender) sent(n int) {
	s.count.txPackets.Add(1)
	s.count.txBytes.Add(uint64(n - virtioSize))
}

// idle waits for a packet. If a heartbeat is due, it is the rest.
func (s *sender) idle() error {
	if err := s.dev.wait(heartbeat); err != nil {
		return err
	}
	if now := time.Now(); now.Sub(s.beat) >= heartbeat {
		s.beat = now
		s.rest = s.spill[:lengthSize]
		clear(s.rest)
	}
	return nil
}

// close gives back what waits.
func (s *sender) close() {
	s.count.down.Add(s.queue.clear())
	s.queue.release(s.staging)
	if s.sending != nil {
		s.queue.release(s.sending)
	}
	s.count.queued.Store(0)
}
