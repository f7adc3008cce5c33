package link

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/flowctl"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// A set-up message in its 256-byte slot:
//
//	0  4  sequence number: 1 for the first message, then one more each
//	4  2  length of the payload, 0 to 240
//	6  1  service, 1 to 7
//	7  1  kind: 1
//	8  4  id of the source
//	12 4  id of the destination
//	16    payload
//
// The first 8 bytes are published last. No payload is ever stored there, so a stale
// message shows by its sequence number.
const (
	setupHeader = 16
	setupKind   = 1

	// maxPending limits the messages that wait for a peer which does not read.
	maxPending = 1 << 14
)

// setupSend is the sending end of the set-up queue. Positions count messages.
type setupSend struct {
	mu      lock.Mutex[lock.Setup]
	account flowctl.Send // guarded by mu
	sent    uint32       // messages put into the queue; guarded by mu
	pending [][]byte     // waiting for credit; guarded by mu
	waiting atomic.Bool  // len(pending) > 0; stored before that is announced
	blocked uint32       // last word published to announce that; guarded by mu
}

// Send sends a set-up message of at most 240 bytes to a service of the peer. It
// does not block. If the queue is full, the message waits for its turn.
func (p *Peer) Send(service int, m []byte) error {
	lock.Device()
	if len(m) > maxSetupData {
		panic(fmt.Sprintf("link: set-up message of %d bytes, want at most %d", len(m), maxSetupData))
	}
	if !p.Up() {
		return ErrDown
	}
	buf := make([]byte, setupHeader+len(m))
	binary.LittleEndian.PutUint16(buf[4:], uint16(len(m)))
	buf[6] = byte(service)
	buf[7] = setupKind
	binary.LittleEndian.PutUint32(buf[8:], uint32(p.node.id))
	binary.LittleEndian.PutUint32(buf[12:], uint32(p.id))
	copy(buf[setupHeader:], m)

	s := &p.setup
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.pending) >= maxPending {
		p.Fail(fmt.Errorf("%w: %v does not read its set-up queue", ErrProtocol, p.id))
		return ErrDown
	}
	s.pending = append(s.pending, buf)
	s.flush(p)
	return nil
}

// flush puts pending messages into the queue. When that is full, it announces the blocked
// word, once until it has sent something. The peer looks behind that, and answers.
func (s *setupSend) flush(p *Peer) {
	if !s.account.Credit(flowctl.Pos(ntb.Load32(p.in, offSetupCredit))) {
		p.Fail(fmt.Errorf("%w: impossible set-up credit from %v", ErrProtocol, p.id))
		return
	}
	sent := false
	for len(s.pending) > 0 && s.account.Room() > 0 {
		s.put(p, s.pending[0])
		s.pending = s.pending[1:]
		sent = true
	}
	waits := len(s.pending) > 0
	if !waits {
		s.pending = nil
	}
	was := s.waiting.Swap(waits)
	asks := waits && (sent || !was)
	if asks {
		s.blocked++
		p.out.Update32(offSetupBlocked, s.blocked)
	}
	if sent || asks {
		p.announce()
	}
}

func (s *setupSend) put(p *Peer, m []byte) {
	off := offSetup + int(s.sent%setupSlots)*setupSize
	s.sent++
	p.out.Write(off+8, m[8:])
	binary.LittleEndian.PutUint32(m, s.sent)
	p.out.Publish64(off, binary.LittleEndian.Uint64(m))
	s.account.Produce(1)
}

// creditArrived is called after a look at the peer's words.
func (s *setupSend) creditArrived(p *Peer) {
	if s.waiting.Load() {
		s.mu.Lock()
		s.flush(p)
		s.mu.Unlock()
	}
}

// setupReceive is the receiving end. Guarded by looks.mu.
type setupReceive struct {
	received uint32
	lapped   bool // each slot has had a message
	credited uint32
	blocked  uint32 // last word of the peer that was answered
}

// before returns the number that the next message's slot has before that comes. With any other one, the message was
// overwritten, or will be: nobody would learn of it.
func (r *setupReceive) before() uint32 {
	if !r.lapped {
		return 0
	}
	return r.received + 1 - setupSlots
}

// receiveSetup handles the set-up messages that have come, returns credit, and informs a peer that
// has announced that it waits for that. It loads the word first: all messages that the peer sent before
// it are taken then. It reports whether there may be more: without credit there are at most setupSlots.
func (p *Peer) receiveSetup() (more bool) {
	r := &p.looks.setup
	blocked := ntb.Load32(p.in, offSetupBlocked)
	for n := 0; ; n++ {
		if n == setupSlots {
			more = true
			break
		}
		off := offSetup + int(r.received%setupSlots)*setupSize
		header := ntb.Load64(p.in, off)
		if number := uint32(header); number != r.received+1 {
			if number != r.before() {
				p.Fail(fmt.Errorf("%w: set-up message of number %d instead of %d from %v", ErrProtocol, number, r.received+1, p.id))
				return false
			}
			break
		}
		// The payload is copied first and then checked, since the peer may change
		// it.
		var m [setupSize]byte
		copy(m[:], p.in[off:off+setupSize])
		r.received++
		r.lapped = r.lapped || r.received == setupSlots
		if err := p.handleSetup(header, m[:]); err != nil {
			p.Fail(err)
			return false
		}
	}
	if r.credited != r.received {
		r.credited = r.received
		p.out.Update32(offSetupCredit, r.credited)
	}
	if blocked != r.blocked {
		r.blocked = blocked
		p.announce()
	}
	return more
}

func (p *Peer) handleSetup(header uint64, m []byte) error {
	n, service, kind := int(header>>32&0xffff), int(header>>48&0xff), byte(header>>56)
	src := ID(binary.LittleEndian.Uint32(m[8:]))
	dst := ID(binary.LittleEndian.Uint32(m[12:]))
	switch {
	case kind != setupKind || n > maxSetupData:
		return fmt.Errorf("%w: set-up message of kind %d and %d bytes from %v", ErrProtocol, kind, n, p.id)
	case service >= numServices || p.handlers[service] == nil:
		return fmt.Errorf("%w: set-up message for service %d from %v", ErrProtocol, service, p.id)
	case src != p.id || dst != p.node.id:
		return fmt.Errorf("%w: set-up message from %v to %v on the link to %v", ErrProtocol, src, dst, p.id)
	}
	return p.handlers[service].Message(m[setupHeader : setupHeader+n])
}
