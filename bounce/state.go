package bounce

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/lock"
)

// Bits of a control block's state word. They are only ever added.
const (
	stateReadClosed = 1 << iota // the peer reads no more
	stateReset                  // the peer gave the connection up
	stateStopped                // the peer stores nothing here any more
	stateFinished               // the peer's FIN is published
)

// phase is how far this side is with closing the connection.
type phase uint8

const (
	phaseOpen    phase = iota
	phaseClosed        // Close has done its part; the ends of leases may do the rest
	phaseStopped       // the peer knows that we store nothing any more
	phaseRemoved       // our memory is given back, or about to be
)

func (p phase) String() string {
	return [...]string{"open", "closed", "stopped", "removed"}[p]
}

// becomes reports whether next may follow p.
func (p phase) becomes(next phase) bool { return next == p+1 }

// state is what the two sides have said of closing the connection.
type state struct {
	control *control // immutable
	// over has the reasons to stop that hold for both halves: stopClosed, stopDown, stopBroken
	// and stopCut. Each is added here before the halves learn of it.
	over atomic.Uint32

	mu lock.Mutex[lock.State]
	// mu guards the following.
	phase     phase
	word      uint32 // our state word at the peer
	due       uint32 // bits that the next change of the word adds
	leases    uint8  // leases that are out, and leaseFIN
	finished  bool   // nothing is written any more, and the FIN was published while that was possible
	resetTold bool   // ECONNRESET was returned
	why       error  // what was wrong with a bad word of the peer
}

// closed reports whether Close or Abort was called.
func (s *state) closed() bool { return s.over.Load()&stopClosed != 0 }

// aborted reports whether this side gave the connection up.
func (s *state) aborted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.word&stateReset != 0
}

// add adds bits to our state word, and returns it. It reports false if the peer has it
// already, or knows that nothing follows.
func (s *state) add(bits uint32) (word uint32, changed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	word = s.word | s.due | bits
	if s.phase >= phaseStopped || word == s.word {
		return word, false
	}
	s.word = word
	return word, true
}

// advance begins the next phase. It reports false if next does not follow the present one.
func (s *state) advance(next phase) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.phase.becomes(next) {
		return false
	}
	s.phase = next
	return true
}

// left reports whether this side is done with the connection: it is closed, and no lease
// is out.
func (s *state) left() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase >= phaseClosed && s.leases == 0
}

// remove begins phaseRemoved if the peer has published STOPPED, or is gone. It
// reports true once.
func (s *state) remove() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	// Our hold on the memory lasts until one caller has claimed the removal here.
	if !s.phase.becomes(phaseRemoved) || s.over.Load()&stopDown == 0 && s.control.state()&stateStopped == 0 {
		return false
	}
	s.phase = phaseRemoved
	return true
}

// peerEnded reports whether the peer's direction has ended, or the connection.
func (s *state) peerEnded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase == phaseRemoved || s.control.state() != 0 || s.over.Load()&(stopDown|stopBroken) != 0
}

// wasReset reports whether the peer gave the connection up, or the connection was lost.
func (s *state) wasReset() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase != phaseRemoved && s.control.state()&stateReset != 0 || lost(s.over.Load())
}

// finish notes that nothing is written any more. If the FIN was published, the next change
// of the state word adds FINISHED.
func (s *state) finish(published bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.finished = true
	if published {
		s.due = stateFinished
	}
}

// hasFinished reports whether finish was called.
func (s *state) hasFinished() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.finished
}

// connected is ENOTCONN when both directions have ended, or the connection was reset: what
// a socket returns from shutdown then.
func (s *state) connected() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase == phaseRemoved {
		return ErrClosed
	}
	peer := s.control.state()
	if (s.word|peer)&stateReset != 0 || s.finished && peer&stateFinished != 0 || lost(s.over.Load()) {
		return os.NewSyscallError("shutdown", syscall.ENOTCONN)
	}
	return nil
}

// lost reports whether a connection ended without a word of the peer: a bad word was
// found, or the link went down before the peer was done with the connection.
func lost(stop uint32) bool { return stop&(stopBroken|stopCut) != 0 }

// By these errors the writer asks the Pair to reset the connection, since the peer reads no
// more.
var (
	errUnread = errors.New("the peer reads no more")
	errTaken  = errors.New("the peer does not read what was written") // which no caller sees
)

// violation is an error by which a half asks the Pair to give the connection up, since the
// peer broke the protocol.
type violation struct{ error }

// broken notes what the peer did wrong, and returns the error of the connection from then
// on: that of the first time.
func (s *state) broken(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.why == nil {
		s.why = fmt.Errorf("peer broke the protocol: %w: %w", err, syscall.ECONNRESET)
	}
	return s.why
}

// resetErr returns the error of a Read or Write after a reset. Write passes EPIPE as end.
//
// If a bad word of the peer was the reason, or that the link is down, the error stays the
// same, since it is unknown what is missing. A reset by the peer is like that of a socket:
// the first call returns ECONNRESET, and later ones what the end of a direction returns,
// io.EOF or EPIPE. A Write gets only EPIPE if the peer's FIN came before its reset. The
// caller holds a half's lock.
func (s *state) resetErr(end error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	peer := s.control.state()
	switch {
	case s.why != nil:
		return s.why
	case lost(s.over.Load()):
	case s.resetTold, end == syscall.EPIPE && peer&stateFinished != 0:
		return end
	}
	s.resetTold = true
	return syscall.ECONNRESET
}

// A lease lets the application work in the bounce buffers themselves: read in place
// what arrived, or fill the peer's buffer. It holds its half's lock, so other
// Reads or Writes of this connection wait. Close does not wait for it. The memory
// stays until the lease ends, and so does the rest of Close's work.
const (
	leaseRead = 1 << iota
	leaseWrite
	leaseFIN // Close or CloseWrite left the FIN to the end of the write lease
)

// lease marks a lease as out, unless the connection was closed meanwhile.
func (s *state) lease(which uint8) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed() {
		return ErrClosed
	}
	s.leases |= which
	return nil
}

// leased reports whether a lease is out.
func (s *state) leased(which uint8) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.leases&which != 0
}

// unlease marks a lease as ended. It returns false and does nothing if it is the write
// lease and a FIN is due that the caller did not know of, and must send first.
func (s *state) unlease(which uint8) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if which == leaseWrite && s.leases&leaseFIN != 0 {
		s.leases &^= leaseFIN
		return false
	}
	s.leases &^= which
	return true
}

// leaveTo leaves the rest of the work in a direction to the end of its lease, if
// one is out, and reports whether one is. No new lease begins after Close was
// marked.
func (s *state) leaveTo(which uint8) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases&which == 0 {
		return false
	}
	if which == leaseWrite {
		s.leases |= leaseFIN
	}
	return true
}
