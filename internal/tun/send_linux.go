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
)

// waits are when a sender that reads no packet sends a heartbeat, and when it does so again if nothing was heard of the peer
// in the first wait. If nothing is heard in the second one either, the peer is gone: its process may be stopped. The side that
// accepted answers each heartbeat of the other one, so that of two idle nodes only one has a timer that fires. A peer that is
// stopped is noticed within 950 ms.
var (
	dialerWaits   = [...]time.Duration{450 * time.Millisecond, 50 * time.Millisecond}
	accepterWaits = [...]time.Duration{900 * time.Millisecond, 50 * time.Millisecond}
)

// errSilent reports that a peer sends nothing any more.
var errSilent = errors.New("nothing is heard of it")

// sender sends what comes out of a device to a peer, while there is a connection.
type sender struct {
	conn  *sdp.Conn
	dev   *device
	queue *Queue
	count *counters

	start   time.Time
	spill   []byte // the end of a packet that does not fit into what Reserve lends
	staging *entry // into which packets are read that wait
	sending *entry // of which rest is a part, or nil
	rest    []byte // what is to be sent of a frame that has begun

	next   time.Time // when tick is called
	quiet  bool      // the deadline of the connection is that
	waits  [2]time.Duration
	heard  *atomic.Uint64 // of the receiver
	known  uint64         // what heard was at the last tick
	misses int            // how many ticks in a row it was the same
}

// run sends until the connection or the device fails, or the peer is silent. A frame that is being sent then is lost.
func (s *sender) run() error {
	s.start, s.spill, s.staging, s.misses = time.Now(), make([]byte, maxFrame), newEntry(maxFrame), -1
	err := s.tick()
	for err == nil {
		if len(s.rest) > 0 || s.queue.Bytes() > 0 {
			err = s.relieve()
		} else {
			err = s.direct()
		}
	}
	return err
}

// tick sets the deadline of the device, behind which it is called again, and fails if the peer is silent.
func (s *sender) tick() error {
	if heard := s.heard.Load(); heard != s.known {
		s.known, s.misses = heard, 0
	} else if s.misses++; s.misses == len(s.waits) {
		return errSilent
	}
	s.next = time.Now().Add(s.waits[s.misses])
	return s.dev.file.SetReadDeadline(s.next)
}

// direct sends a packet while nothing waits: the kernel writes it to where it goes. Without room it queues packets.
func (s *sender) direct() error {
	b, err := s.reserve(maxFrame)
	if err != nil {
		return err
	}
	if len(b) < lengthSize {
		if b != nil {
			s.conn.Commit(0)
		}
		return s.fill(true)
	}
	n, err := s.dev.read(true, b[lengthSize:], s.spill)
	if err == nil && s.quiet {
		err = s.conn.SetWriteDeadline(time.Now().Add(patience))
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		if err = s.tick(); err == nil {
			n, err = s.dev.read(false, b[lengthSize:], s.spill)
		}
	}
	if s.quiet = err == unix.EAGAIN; s.quiet {
		n, err = 0, s.conn.SetWriteDeadline(s.next) // the time of patience would be another wake
	}
	if err != nil || n > maxBody {
		s.conn.Commit(0)
		return err
	}
	binary.LittleEndian.PutUint32(b, uint32(n)) // 0 in a heartbeat
	if n > 0 {
		s.sent(n)
	}
	n += lengthSize
	s.conn.Commit(min(n, len(b)))
	s.rest = s.spill[:max(n-len(b), 0)]
	return nil
}

// relieve takes packets into the queue, and sends a frame of it, as far as there is room soon.
func (s *sender) relieve() error {
	if err := s.fill(false); err != nil {
		return err
	}
	if len(s.rest) == 0 {
		if s.sending = s.queue.pop(time.Since(s.start)); s.sending == nil {
			return nil
		}
		s.rest = s.sending.b
		s.sent(len(s.rest) - lengthSize)
		s.count.queued.Store(int64(s.queue.Bytes()))
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
		s.sending.release()
		s.sending = nil
	}
	return nil
}

// fill takes packets into the queue, a batch at most. If there is none, it may wait for the first.
func (s *sender) fill(wait bool) error {
	for range batch {
		n, err := s.dev.read(wait, s.staging.b[lengthSize:], nil)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			if err = s.tick(); err == nil {
				break
			}
		}
		if err == unix.EAGAIN {
			break
		}
		if err != nil {
			return err
		}
		wait = false
		binary.LittleEndian.PutUint32(s.staging.b, uint32(n))
		n += lengthSize
		e := s.staging
		if n > maxFrame/2 {
			s.staging = newEntry(maxFrame)
		} else {
			e = newEntry(n)
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

// close gives back what waits.
func (s *sender) close() {
	s.count.down.Add(s.queue.clear())
	s.staging.release()
	if s.sending != nil {
		s.sending.release()
	}
	s.count.queued.Store(0)
}
