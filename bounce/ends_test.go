package bounce

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/explore"
	"github.com/ntbnet/ntbnet/ntb"
)

// endFault is a mistake that a call makes in a world of ends.
type endFault string

// The planted faults. Each is found by seeds and by the exploration of small cases.
const (
	noEndFault    endFault = ""
	resetsTwice   endFault = "ECONNRESET is returned twice"
	resetsAsEOF   endFault = "a reset is returned as an end"
	forgetsFIN    endFault = "Close publishes no FIN"
	ignoresUnread endFault = "Close does not find what was not read"
	keepsReading  endFault = "that both directions have ended is not published"
	writesOn      endFault = "Write goes on after CloseWrite"
	losesNothing  endFault = "the end of the link is not an end of the connection"
	losesTwice    endFault = "a second Write is lost without an error"
)

var endFaults = []endFault{
	resetsTwice, resetsAsEOF, forgetsFIN, ignoresUnread, keepsReading, writesOn, losesNothing, losesTwice,
}

// side is an endpoint of a connection, and what "Ending" of docs/protocol/stream.md says of it.
type side struct {
	c          *Pair
	peer       *side
	endedWrite bool   // by CloseWrite
	endedRead  bool   // by CloseRead
	closed     bool   // by Close or Abort
	reset      bool   // ECONNRESET was returned
	broken     bool   // by a bad word of the peer
	peeked     bool   // a read lease is out
	reserved   bool   // a write lease is out
	nowhere    bool   // what it lends goes nowhere
	finDue     bool   // at its end the FIN is published
	finished   bool   // no FIN is published any more
	word       uint32 // its state word
	due        uint32 // what the next change of it adds
	seen       uint32 // the peer's state word, as it arrived
	unread     int    // bytes that arrived
	fin        bool   // the peer's FIN has arrived, behind them
}

// ends is a connection. All that happens is a call of a method.
type ends struct {
	fault endFault
	down  bool // the link: nothing arrives any more
	sides [2]side
	trace explore.Trace
	wrong string // the first thing that may not happen
}

// endEvents are what may happen to an endpoint.
var endEvents = []struct {
	name string
	do   func(e *ends, s *side)
	may  func(s *side) bool // nil for always
}{
	{"write", (*ends).write, func(s *side) bool { return !s.reserved }}, // it would wait for the lease
	{"read", (*ends).read, func(s *side) bool { return !s.peeked }},
	{"close write", (*ends).closeWrite, nil},
	{"close read", (*ends).closeRead, nil},
	{"close", func(e *ends, s *side) { e.close(s, false) }, nil},
	{"abort", func(e *ends, s *side) { e.close(s, true) }, nil},
	{"peek", (*ends).peek, func(s *side) bool { return !s.peeked }},
	{"discard", (*ends).discard, func(s *side) bool { return s.peeked }},
	{"reserve", (*ends).reserve, func(s *side) bool { return !s.reserved }},
	{"commit", (*ends).commit, func(s *side) bool { return s.reserved }},
	{"bad word", (*ends).badWord, func(s *side) bool { return !s.closed }},
}

// Some of endEvents, by number.
const (
	eventClose   = 4
	eventDiscard = 7
	eventCommit  = 9
)

func newEnds(fl endFault, pa, pb *Pool) (*ends, error) {
	a, err := pa.NewPair()
	if err != nil {
		return nil, err
	}
	b, err := pb.NewPair()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(a.Connect(b.Endpoint()), b.Connect(a.Endpoint())); err != nil {
		return nil, err
	}
	e := &ends{fault: fl}
	e.sides[0].c, e.sides[1].c = a, b
	e.sides[0].peer, e.sides[1].peer = &e.sides[1], &e.sides[0]
	return e, nil
}

func (e *ends) fail(format string, args ...any) {
	if e.wrong == "" {
		e.wrong = fmt.Sprintf(format, args...)
	}
}

// happen has an event happen, number i of all.
func (e *ends) happen(i int) {
	n := len(endEvents)
	if i == 2*n {
		e.trace.Note("down")
		e.linkDown()
	} else {
		e.trace.Note(endEvents[i%n].name, i/n)
		s := &e.sides[i/n]
		if e.fault == resetsTwice {
			s.c.state.resetTold = false
		}
		endEvents[i%n].do(e, s)
	}
	e.check()
}

// events returns the numbers of what may happen now.
func (e *ends) events() []int {
	var may []int
	for i := range e.sides {
		for k, ev := range endEvents {
			if ev.may == nil || ev.may(&e.sides[i]) {
				may = append(may, i*len(endEvents)+k)
			}
		}
	}
	if !e.down {
		may = append(may, 2*len(endEvents))
	}
	return may
}

// check checks the phase and the state word of each endpoint.
func (e *ends) check() {
	for i := range e.sides {
		s := &e.sides[i]
		s.c.Notified(link.Space) // the link's goroutine may not have come yet
		want := phaseOpen
		switch {
		case s.closed && (s.peeked || s.reserved):
			want = phaseClosed
		case s.closed && (e.down || s.seen&stateStopped != 0):
			want = phaseRemoved
		case s.closed:
			want = phaseStopped
		}
		s.c.state.mu.Lock()
		phase, word := s.c.state.phase, s.c.state.word
		s.c.state.mu.Unlock()
		e.trace.Note("state", phase, word)
		if phase != want {
			e.fail("side %d is %v, want %v", i, phase, want)
		}
		if word != s.word {
			e.fail("side %d has published %b, want %b", i, word, s.word)
		}
		if phase != phaseRemoved && s.c.control.state() != s.seen {
			e.fail("side %d sees %b, want %b", i, s.c.control.state(), s.seen)
		}
	}
}

// returned checks the error of a call.
func (e *ends) returned(s *side, what string, err, want error) {
	e.trace.Note("returned", fmt.Sprint(err))
	if !errors.Is(err, want) {
		e.fail("%s of side %d: %v, want %v", what, e.number(s), err, want)
	}
}

func (e *ends) number(s *side) int {
	if s == &e.sides[0] {
		return 0
	}
	return 1
}

// add publishes bits of the state word, unless nothing follows.
func (e *ends) add(s *side, bits uint32) {
	if s.word&stateStopped != 0 {
		return
	}
	s.word |= s.due | bits
	if !e.down {
		s.peer.seen = s.word
	}
}

// finish publishes the FIN, once, but not after a reset. It reports whether it did.
func (e *ends) finish(s *side) bool {
	if s.finished || s.word&stateReset != 0 {
		return false
	}
	s.finished = true
	if e.down {
		return false
	}
	s.peer.fin = true
	s.due = stateFinished
	return true
}

// lost reports whether the peer broke the protocol, or the link went down before the peer had
// stopped.
func (e *ends) lost(s *side) bool { return s.broken || e.down && s.seen&stateStopped == 0 }

// resetErr returns the error after a reset: end, if ECONNRESET was returned.
func (e *ends) resetErr(s *side, end error) error {
	if !e.lost(s) && (s.reset || end == syscall.EPIPE && s.seen&stateFinished != 0) {
		return end
	}
	s.reset = true
	return syscall.ECONNRESET
}

// connected returns the error of CloseWrite and CloseRead.
func (e *ends) connected(s *side) error {
	if (s.word|s.seen)&stateReset != 0 || s.finished && s.seen&stateFinished != 0 || e.lost(s) {
		return syscall.ENOTCONN
	}
	return nil
}

// takesNothing reports whether a Write counts as written and is lost: the peer, and nothing
// else, has ended.
func (e *ends) takesNothing(s *side) bool {
	return s.seen&^stateFinished != 0 && !s.closed && !s.endedWrite && s.word&stateReset == 0 && !e.lost(s)
}

// writeErr returns the error of Write and Reserve.
func (e *ends) writeErr(s *side) error {
	switch {
	case s.closed:
		return ErrClosed
	case s.seen&stateReset != 0 || e.lost(s):
		return e.resetErr(s, syscall.EPIPE)
	case s.endedWrite || s.word&stateReset != 0:
		return syscall.EPIPE
	}
	return nil
}

func (e *ends) write(s *side) {
	want := e.writeErr(s)
	switch {
	case want != nil:
	case e.takesNothing(s):
		e.add(s, stateReset)
	default:
		s.peer.unread++
	}
	switch e.fault {
	case writesOn:
		s.c.w.waiter.stop.And(^uint32(stopShut))
	case losesTwice:
		s.c.state.mu.Lock()
		s.c.state.word &^= stateReset
		s.c.state.mu.Unlock()
	}
	_, err := s.c.Write([]byte{1})
	e.returned(s, "Write", err, want)
}

func (e *ends) reserve(s *side) {
	want := e.writeErr(s)
	b, err := s.c.Reserve(1)
	e.returned(s, "Reserve", err, want)
	if err == nil {
		b[0] = 1
		s.reserved, s.nowhere = true, e.takesNothing(s)
	}
}

func (e *ends) commit(s *side) {
	s.reserved = false
	if !e.down && !s.broken && !s.nowhere {
		s.peer.unread++
	}
	if e.takesNothing(s) {
		e.add(s, stateReset)
	}
	if s.finDue {
		s.finDue = false
		if e.finish(s) {
			e.add(s, stateFinished)
		}
		if !s.closed {
			e.bothEnded(s)
		}
	}
	e.leaseEnded(s)
	s.c.Commit(1)
}

// leaseEnded publishes what Close has left to the end of the last lease.
func (e *ends) leaseEnded(s *side) {
	if s.closed && !s.peeked && !s.reserved {
		e.add(s, stateReadClosed|stateStopped)
	}
}

// readErr returns the error of Read and Peek. It reports whether they would wait instead.
func (e *ends) readErr(s *side) (want error, waits bool) {
	wasReset := s.seen&stateReset != 0 || e.down || s.broken
	ended := s.fin || wasReset || s.endedRead
	if s.closed {
		return ErrClosed, false
	}
	found, end := -1, false
	err := s.c.Look(func(next []byte, ended bool) (int, bool, error) {
		found, end = len(next), ended
		return 0, true, nil
	})
	if err != nil || found > 0 != (s.unread > 0) || end != (s.unread == 0 && ended) {
		e.fail("side %d finds %d bytes, and the end: %v, %v; want %d, %v", e.number(s), found, end, err, s.unread, ended)
		return nil, true
	}
	switch {
	case s.unread > 0:
		return nil, false
	case !s.fin && wasReset:
		return e.resetErr(s, io.EOF), false
	}
	return io.EOF, !ended
}

func (e *ends) read(s *side) {
	want, waits := e.readErr(s)
	if waits {
		return
	}
	if e.fault == resetsAsEOF {
		s.c.state.resetTold = true
	}
	n, err := s.c.Read(make([]byte, 64))
	e.returned(s, "Read", err, want)
	if want == nil {
		if n != s.unread {
			e.fail("side %d reads %d bytes, want %d", e.number(s), n, s.unread)
		}
		s.unread = 0
	}
}

func (e *ends) peek(s *side) {
	want, waits := e.readErr(s)
	if waits {
		return
	}
	_, err := s.c.Peek()
	e.returned(s, "Peek", err, want)
	s.peeked = err == nil
}

func (e *ends) discard(s *side) {
	s.peeked = false
	s.unread--
	e.leaseEnded(s)
	s.c.Discard(1)
}

func (e *ends) closeWrite(s *side) {
	want := error(ErrClosed)
	if !s.closed {
		want = e.connected(s)
		s.endedWrite = true
	}
	switch {
	case want != nil:
	case s.reserved:
		s.finDue = true
	default:
		if e.finish(s) {
			e.add(s, stateFinished)
		}
		e.bothEnded(s)
	}
	stop := s.c.r.waiter.stop.Load()
	if e.fault == keepsReading {
		s.c.r.waiter.stop.And(^uint32(stopShut))
	}
	err := s.c.CloseWrite()
	s.c.r.waiter.stop.Or(stop)
	e.returned(s, "CloseWrite", err, want)
}

func (e *ends) closeRead(s *side) {
	want := error(ErrClosed)
	if !s.closed {
		want = e.connected(s)
		s.endedRead = true
	}
	if !s.closed && want == nil {
		e.bothEnded(s)
	}
	e.returned(s, "CloseRead", s.c.CloseRead(), want)
}

// bothEnded publishes that both directions have ended here, if they have.
func (e *ends) bothEnded(s *side) {
	if s.finished && s.endedRead {
		e.add(s, stateReadClosed)
	}
}

func (e *ends) close(s *side, abort bool) {
	var want error
	if s.closed {
		want = ErrClosed
	} else {
		s.closed = true
		if abort || !s.peeked && s.unread > 0 && e.connected(s) == nil {
			e.add(s, stateReset)
		}
		if s.reserved {
			s.finDue = true
		} else if e.finish(s) && s.peeked {
			e.add(s, stateFinished)
		}
		if s.peeked || s.reserved {
			e.add(s, stateReadClosed)
		}
		e.leaseEnded(s)
	}
	switch {
	case want != nil:
	case e.fault == forgetsFIN:
		s.c.w.mu.Lock()
		s.c.w.finSent = true
		s.c.w.mu.Unlock()
	case e.fault == ignoresUnread:
		if !s.peeked {
			s.c.r.mu.Lock()
			s.c.r.rx.get(make([]byte, 64))
			s.c.r.mu.Unlock()
		}
	}
	if abort {
		e.returned(s, "Abort", s.c.Abort(), want)
	} else {
		e.returned(s, "Close", s.c.Close(), want)
	}
}

// badWord has a call find a word that no honest peer publishes.
func (e *ends) badWord(s *side) {
	s.broken = true
	e.add(s, stateReset)
	e.returned(s, "a call", s.c.failed(violation{errBadRecord}), syscall.ECONNRESET)
}

// linkDown has the link go down: what is stored from now on arrives nowhere.
func (e *ends) linkDown() {
	e.down = true
	for i := range e.sides {
		c := e.sides[i].c
		c.control.far = ntb.MappedWindow(ntb.AlignedBytes(line), ntb.Cacheable)
		c.w.tx.win = ntb.MappedWindow(ntb.AlignedBytes(c.w.tx.size), ntb.Cacheable)
		if e.fault != losesNothing {
			c.linkDown()
		}
	}
}

// settle ends the leases and closes what is open. All memory is given back then.
func (e *ends) settle() {
	for i := range e.sides {
		s, first := &e.sides[i], i*len(endEvents)
		if s.peeked {
			e.happen(first + eventDiscard)
		}
		if s.reserved {
			e.happen(first + eventCommit)
		}
		if !s.closed {
			e.happen(first + eventClose)
		}
	}
}

// abandon gives back what a connection holds where something was wrong.
func (e *ends) abandon() {
	for i := range e.sides {
		s := &e.sides[i]
		if s.c.state.leased(leaseRead) {
			s.c.Discard(0)
		}
		if s.c.state.leased(leaseWrite) {
			s.c.Commit(0)
		}
		s.c.Abort()
	}
	for i := range e.sides {
		e.sides[i].c.linkDown()
	}
}

// visitEnds goes through each sequence of depth events.
func visitEnds(fl endFault, pa, pb *Pool, depth int) (wrong string, runs int) {
	return explore.Choices(1_000_000, func(choose func(n int) int) string {
		e, err := newEnds(fl, pa, pb)
		if err != nil {
			return err.Error()
		}
		defer e.abandon()
		for range depth {
			may := e.events()
			e.happen(may[choose(len(may))])
			if e.wrong != "" {
				return e.wrong
			}
		}
		e.settle()
		return e.wrong
	})
}

// After each sequence of a few events, calls return what "Ending" of docs/protocol/stream.md says,
// and what has ended is published and given back.
func TestSmallCasesEnd(t *testing.T) {
	explore.Once(t)
	pa, pb := plainPools(t, Options{})
	const depth = 4
	wrong, runs := visitEnds(noEndFault, pa, pb, depth)
	require.Empty(t, wrong)
	t.Logf("%d sequences of %d events", runs, depth)
	require.Eventually(t, func() bool { // the links' goroutines may still be at it
		return pa.Used().Pairs == 0 && pb.Used().Pairs == 0
	}, 60*time.Second, time.Millisecond)
}

func runEnds(fl endFault, pa, pb *Pool, seed uint64) (string, explore.Trace) {
	rng := rand.New(rand.NewPCG(seed, 0))
	e, err := newEnds(fl, pa, pb)
	if err != nil {
		return err.Error(), 0
	}
	defer e.abandon()
	e.trace = explore.Begin(seed)
	for range 2 + rng.IntN(20) {
		may := e.events()
		e.happen(may[rng.IntN(len(may))])
		if e.wrong != "" {
			return e.wrong, e.trace
		}
	}
	e.settle()
	return e.wrong, e.trace
}

func TestSeedsEnd(t *testing.T) {
	pa, pb := plainPools(t, Options{})
	explore.Seeds(t, 3000, func(seed uint64) (string, explore.Trace) { return runEnds(noEndFault, pa, pb, seed) })
}

func TestSeedsFindFaultsPlantedInEnds(t *testing.T) {
	pa, pb := plainPools(t, Options{})
	run := func(fl endFault, seed uint64) (string, explore.Trace) { return runEnds(fl, pa, pb, seed) }
	explore.Planted(t, endFaults, run, func(fl endFault) (found string) {
		for depth := 1; depth <= 4 && found == ""; depth++ {
			found, _ = visitEnds(fl, pa, pb, depth)
		}
		return found
	})
}

// CloseWrite leaves the FIN to a write lease. At its end both directions have ended, if
// CloseRead was called, and the peer's writes are for nothing.
func TestBothDirectionsEndAtTheEndOfAWriteLease(t *testing.T) {
	pa, pb := memPools(t, Options{})
	a, b := connect(t, pa, pb)
	_, err := a.Reserve(1)
	require.NoError(t, err)
	require.NoError(t, a.CloseRead())
	require.NoError(t, a.CloseWrite())
	_, err = b.Write([]byte{1})
	require.NoError(t, err)
	a.Commit(0)
	_, err = b.Write([]byte{1})
	require.NoError(t, err, "it is lost, as over TCP")
	_, err = b.Write([]byte{1})
	require.ErrorIs(t, err, syscall.EPIPE)
}
