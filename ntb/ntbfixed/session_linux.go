//go:build linux && (amd64 || arm64)

package ntbfixed

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/shm/gate"
	"github.com/ntbnet/ntbnet/ntb"
)

// States of a session. They only grow.
const (
	linkUp int32 = iota
	linkDown
	closed
)

// session implements ntb.Device.
type session struct {
	// Immutable.
	attachment *attachment
	caps       ntb.Caps
	page       *page // brought up by Open, and then kept alive by keepAlive
	inbound    []byte
	outbound   ntb.Window

	// Mapped until Close has shut the gate.
	own, peer mapping
	gate      gate.Gate

	rings [doorbells]atomic.Uint32 // how often each of the peer's doorbells was rung
	bells [doorbells]chan struct{} // capacity 1
	kick  chan struct{}            // capacity 1: an interrupt
	mu    lock.Mutex[lock.Attach]  // guards the following
	seen  [doorbells]uint32        // doorbell words
	views []*view                  // what MapAt has mapped

	state   atomic.Int32
	begun   atomic.Bool   // set by begin; until then the page is bringUp's alone
	down    chan struct{} // closed by takeDown
	ended   chan struct{} // closed when keepAlive has returned; nil if it was not begun
	cutOnce sync.Once     // for takeDown
	cutErr  error         // why old stores may reach the memory; guarded by cutOnce
	once    sync.Once     // for Close
	err     error         // result of Close; guarded by once
}

func newSession(a *attachment) (*session, error) {
	s := &session{attachment: a, gate: gate.New(), kick: make(chan struct{}, 1), down: make(chan struct{})}
	for i := range s.bells {
		s.bells[i] = make(chan struct{}, 1)
	}
	var err error
	if s.own, err = mapMemory(a.config.Own, nil); err == nil {
		s.peer, err = mapMemory(a.config.Peer, nil)
	}
	if err != nil {
		return nil, errors.Join(err, s.unmap())
	}
	s.caps = ntb.Caps{
		Backend: cmp.Or(a.config.Backend, "fixed"), Doorbells: doorbells, Scratchpads: scratchpads, FenceToLook: true,
		Untrusted: a.config.Untrusted, RemoteCPU: a.config.RemoteCPU,
	}
	s.caps.Mapper = s
	if a.config.Revocable {
		s.caps.Revocable, s.caps.Untrusted = s, true
	}
	out := ntb.MappedWindow(s.peer.mem, a.config.Kind)
	s.page = newPage(s.own.mem[:PageSize:PageSize], out.Slice(0, PageSize), a.epoch)
	if a.config.Interrupt == nil {
		s.page.id = mute << 32
	} else if !a.polls() || a.config.Named {
		s.page.id = idWord(a.config.ID, !a.polls())
	}
	s.page.told = a.config.Told
	s.inbound = s.own.mem[PageSize:len(s.own.mem):len(s.own.mem)]
	s.outbound = out.Part(PageSize, out.Len()-PageSize)
	s.page.sizes = sizesWord(len(s.inbound), s.outbound.Len())
	return s, nil
}

// fit makes both windows as small as the peer's are, once the peer has answered.
func (s *session) fit() error {
	in, out := s.page.windows()
	if in == 0 || out == 0 {
		return fmt.Errorf("ntbfixed: the peer has no room for windows")
	}
	s.inbound = s.inbound[:in:in]
	s.outbound = s.outbound.Slice(0, out)
	return nil
}

// clear clears this side's memory for a new session of the peer.
func (s *session) clear() {
	s.page.clear()
	for off := 0; off < len(s.inbound); off += 8 {
		ntb.Clear64(s.inbound, off)
	}
}

// begin is called when the session is up.
func (s *session) begin() {
	if s.attachment.config.Zeros {
		s.page.mark()
	}
	s.ended = make(chan struct{})
	s.begun.Store(true)
	if a := s.attachment; !a.polls() && s.page.peerMute() {
		a.looking.Go(func() { a.poll(s.down) })
	}
	go s.keepAlive()
}

// keepAlive keeps the heartbeat going, and ends the session with the peer's.
func (s *session) keepAlive() {
	defer close(s.ended)
	tick := time.NewTicker(Tick)
	defer tick.Stop()
	s.look() // what came before
	silent := 0
	for {
		select {
		case <-s.down:
			return
		case <-s.attachment.config.Down:
			s.takeDown()
			return
		case <-s.kick:
		case <-tick.C:
			silent = s.page.tick()
			s.look() // the interrupt of a doorbell may have been lost
		}
		// A peer that stores to the mark, which is this side's alone, ends the session too: Gone is true for ever.
		ended := s.page.hasEnded() || s.peerGone(silent) || s.lost() || s.lostView()
		if !ended && s.gone() {
			slog.Warn("ntbfixed: the peer has stored where only this side does, and the session ends", "backend", s.caps.Backend)
			ended = true
		}
		if ended {
			s.takeDown()
			return
		}
	}
}

// lost reports whether the memory has gone for this session, even if it is there again.
func (s *session) lost() bool {
	return s.own.guard.Lost() || s.peer.guard.Lost()
}

// lostView reports whether memory that MapAt has mapped has gone.
func (s *session) lostView() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.views, func(v *view) bool { return v.guard.Lost() })
}

// gone reports whether the inbound memory has gone. Where it reads as zeros, the mark of the session has gone.
func (s *session) gone() bool {
	return s.own.guard.Lost() || s.attachment.config.Zeros && !s.page.marked(s.own.mem)
}

// Gone implements ntb.Revocable. takeDown exchanges the memory. What was read before may have been the zeros
// of a file, and what is there behind it a copy from before them, so takeDown decides.
func (s *session) Gone() bool {
	if s.gone() {
		return true
	}
	if s.LinkUp() {
		return false
	}
	<-s.down
	return s.gone()
}

// view is inbound memory that is mapped at other addresses as well.
type view struct {
	mapping
	off int // in the memory of the session
}

// MapAt implements ntb.Mapper.
func (s *session) MapAt(off int, at []byte) (release func(), err error) {
	own, v := s.attachment.config.Own, &view{off: PageSize + off}
	if off < 0 || len(at) == 0 || off > len(s.inbound)-len(at) {
		panic(fmt.Sprintf("ntbfixed: map %d bytes at %d of %d", len(at), off, len(s.inbound)))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.LinkUp() { // keep finds what was mapped before
		return nil, ntb.ErrLinkDown
	}
	if v.mapping, err = mapMemory(Memory{own.FD, own.Offset + int64(v.off), len(at)}, at); err != nil {
		return nil, err
	}
	s.views = append(s.views, v)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		v.guard.Release()
		s.views = slices.DeleteFunc(s.views, func(o *view) bool { return o == v })
	}, nil
}

// keep has the inbound memory hold what it holds for good, wherever it is mapped, or zeros if that has gone
// meanwhile.
func (s *session) keep() error {
	err := s.keepOwn()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, v := range s.views {
		err = errors.Join(err, v.hold(s.own.mem[v.off:v.off+len(v.mem)]))
	}
	return err
}

func (s *session) keepOwn() error {
	switch {
	case !s.attachment.config.Zeros:
		return s.own.keep()
	case s.severed(): // so its memory is gone, or stays
		if !s.page.marked(s.own.mem) {
			return s.own.scratch()
		}
		err := s.own.keep()
		if !s.page.marked(s.own.mem) {
			err = errors.Join(err, s.own.scratch())
		}
		return err
	}
	still, err := mapMemory(s.attachment.config.Own, nil) // the same memory, also behind the exchange
	if err != nil {
		slog.Warn("ntbfixed: what came before the session ended is lost", "reason", err)
		return s.own.scratch()
	}
	err = s.own.keep()
	if !s.page.marked(s.own.mem) || !s.page.marked(still.mem) {
		err = errors.Join(err, s.own.scratch())
	}
	return errors.Join(err, still.unmap())
}

// peerGone reports whether the peer has gone without ending its session, by those who know, or else by its silence,
// in ticks.
func (s *session) peerGone(silent int) bool {
	if ask := s.attachment.config.Gone; ask != nil {
		id, _, ok := s.page.peerID()
		gone, known := ask(id)
		if ok && known && (gone || s.page.toldBy()) {
			return gone
		}
	}
	return silent >= s.attachment.config.deadTicks()
}

// interrupted is called for each interrupt.
func (s *session) interrupted() {
	if !s.gate.Enter() {
		return
	}
	s.look()
	s.gate.Leave()
	s.checkEnd()
}

// checkEnd has keepAlive check whether the session has ended.
func (s *session) checkEnd() {
	select {
	case s.kick <- struct{}{}:
	default:
	}
}

// polled is called from time to time where there are no interrupts. It reports whether a
// doorbell was rung.
func (s *session) polled() bool {
	if !s.gate.Enter() {
		return false
	}
	defer s.gate.Leave()
	if s.begun.Load() && s.page.hasEnded() {
		s.checkEnd()
	}
	return s.look()
}

// interrupt interrupts the peer for a doorbell, if it takes interrupts and this side can.
func (s *session) interrupt(bit int) {
	ring := s.attachment.config.Interrupt
	if id, interrupts, _ := s.page.peerID(); interrupts && ring != nil {
		ring(id, bit)
	}
}

// look wakes the waiters of doorbells that were rung, and reports whether there were any. The
// caller keeps the memory mapped.
func (s *session) look() (rung bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.bells {
		word := s.page.rung(i)
		if word == s.seen[i] {
			continue
		}
		s.seen[i], rung = word, true
		// A channel that appears full is left alone without a lock. The waiter that takes
		// its token must see what was stored before (as pair S11).
		ntb.Fence()
		select {
		case s.bells[i] <- struct{}{}:
		default:
		}
	}
	return rung
}

// takeDown ends the session here and, in the peer's page, for the peer. On return nothing
// that is stored through it reaches the peer, and the peer reaches nothing of it.
func (s *session) takeDown() {
	s.cutOnce.Do(func() {
		s.state.CompareAndSwap(linkUp, linkDown)
		if s.lost() && s.ended != nil { // else Open reports it
			slog.Warn(errGone.Error(), "backend", s.caps.Backend)
		}
		if s.page.hasEnded() {
			s.cutErr = s.keep() // before the peer hears that it may let the memory go
			s.announceEnd()
			s.cutErr = errors.Join(s.cutErr, s.peer.scratch())
		} else {
			s.announceEnd()
			s.cutErr = errors.Join(s.peer.scratch(), s.keep())
		}
		close(s.down)
	})
}

// announceEnd tells the peer. Where memory has gone, the session's addresses of the peer's page have too, but perhaps not
// that page.
func (s *session) announceEnd() {
	s.page.end()
	if s.peer.guard.Lost() && !s.severed() {
		still, err := mapMemory(s.attachment.config.Peer, nil)
		if err != nil {
			slog.Warn("ntbfixed: the other side does not hear that the session has ended", "reason", err)
		} else {
			s.page.to(ntb.MappedWindow(still.mem, s.attachment.config.Kind)).end()
			_ = still.unmap()
		}
	}
	s.interrupt(0)
}

func (s *session) Caps() ntb.Caps         { return s.caps }
func (s *session) Inbound() []byte        { return s.inbound }
func (s *session) Outbound() ntb.Window   { return s.outbound }
func (s *session) LinkUp() bool           { return s.state.Load() == linkUp }
func (s *session) DMA(int) ntb.DMAChannel { panic("ntbfixed: no DMA channels") }
func (s *session) Disable()               { s.takeDown() }
func (s *session) Reclaim(int, int) error { return ntb.ErrNotSupported }

func (s *session) Spad(i int) uint32 {
	check("scratchpad", i, scratchpads)
	if !s.LinkUp() || !s.gate.Enter() {
		return ^uint32(0)
	}
	defer s.gate.Leave()
	return s.page.spad(i)
}

func (s *session) SetPeerSpad(i int, v uint32) {
	lock.Device()
	check("scratchpad", i, scratchpads)
	if s.LinkUp() && s.gate.Enter() {
		s.page.setPeerSpad(i, v)
		s.gate.Leave()
	}
}

// RingDoorbell implements ntb.Device. The word is stored before the interrupt.
func (s *session) RingDoorbell(bit int) {
	lock.Device()
	check("doorbell", bit, doorbells)
	if s.LinkUp() && s.gate.Enter() {
		s.page.ring(bit, s.rings[bit].Add(1))
		s.interrupt(bit)
		s.attachment.hurry()
		s.gate.Leave()
	}
}

func check(what string, i, n int) {
	if i < 0 || i >= n {
		panic(fmt.Sprintf("ntbfixed: %s %d of %d", what, i, n))
	}
}

func (s *session) WaitDoorbell(bit int) error {
	if err := s.linkError(); err != nil {
		return err
	}
	select {
	case <-s.bells[bit]:
	case <-s.down:
	}
	return s.linkError()
}

func (s *session) linkError() error {
	switch s.state.Load() {
	case linkUp:
		return nil
	case linkDown:
		return ntb.ErrLinkDown
	default:
		return ntb.ErrClosed
	}
}

// Order implements ntb.Device by a read across the bridge. Its answer comes behind what both
// sides have stored before. A link that is known to be down is not read across, since some machines
// take the failure for a fatal error.
func (s *session) Order() {
	lock.Device()
	ntb.Fence()
	if !s.severed() && s.LinkUp() && s.gate.Enter() {
		ntb.Load64(s.peer.mem, heartbeatAt)
		s.gate.Leave()
	}
	ntb.Fence()
}

// severed reports whether the link to the peer's memory has ended.
func (s *session) severed() bool {
	select {
	case <-s.attachment.config.Down:
		return true
	default:
		return false
	}
}

// Close implements ntb.Device.
func (s *session) Close() error {
	s.once.Do(func() {
		s.state.Store(closed)
		s.takeDown()
		if s.ended != nil {
			<-s.ended
		}
		s.gate.ShutAndWait()
		s.err = s.unmap()
	})
	return s.err
}

func (s *session) unmap() error { return errors.Join(s.own.unmap(), s.peer.unmap()) }
