package ntbfixed

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// The header page; docs/protocol/link.md has the layout. The peer writes all of it but the mark. The
// magic is stored last of what a side writes.
const (
	// PageSize is the size of the header page, and the offset of the window behind it.
	PageSize = 4096
	// Doorbells is how many doorbells a device has.
	Doorbells = 16

	magicAt     = 0
	seenAt      = 8
	epochAt     = 16
	stateAt     = 24
	heartbeatAt = 32
	idAt        = 40
	sizesAt     = 48
	toldAt      = 56
	spadsAt     = 64
	bellsAt     = 128
	markAt      = 192

	scratchpads = 16
	doorbells   = Doorbells

	pageMagic   = 0x6e746266 // "ntbf"
	pageVersion = 3

	stateEnded = 1

	// Above an id.
	interrupted = 1
	named       = 2
	mute        = 3 // there is none, and this side interrupts nobody
)

const (
	// Tick is how often a side changes its heartbeat and looks at the peer's. Each wakes the process.
	Tick = 200 * time.Millisecond
	// Silence is how long a side hears no heartbeat before the peer counts as dead, unless Config says otherwise.
	// Ticks are counted, not time: a machine that is busy or suspended delays that side as well.
	Silence = 5 * time.Second
)

// A step is the result of a look during bring-up.
type step int

const (
	// waiting means that the peer has not written or answered enough.
	waiting step = iota
	// newPeer means that the peer has begun a session that was not answered. The caller
	// clears the memory and then calls answer.
	newPeer
	// ready means that both sides have answered each other's session.
	ready
)

// page is one session's view of the two header pages: its side's, which the peer writes, and
// the peer's, which this side writes. One goroutine brings it up, and then keeps it alive. It
// needs nothing but memory.
type page struct {
	own   []byte     // immutable
	peer  ntb.Window // immutable
	epoch uint32     // of this session; immutable
	id    uint64     // the word of this side's id; constant after the first publish
	sizes uint64     // that of the sizes of its windows; likewise
	told  bool       // somebody says when this side's process ends; likewise

	// Of that goroutine.
	found    uint32 // epoch of the peer's session at the last look
	answered uint32 // epoch of the peer's session that was answered; 0 for none
	beat     uint64 // own heartbeat
	heard    uint64 // the peer's last
	silent   int    // ticks since then
}

// newPage returns the view of a session. Each session of a side must have another epoch than
// the one before, and none 0 or all ones. own must have PageSize bytes, and so must peer.
func newPage(own []byte, peer ntb.Window, epoch uint32) *page {
	return &page{own: own, peer: peer, epoch: epoch}
}

// idWord returns the word of an id, and whether its side takes interrupts by it.
func idWord(id uint32, interrupts bool) uint64 {
	if interrupts {
		return uint64(id) | interrupted<<32
	}
	return uint64(id) | named<<32
}

// sizesWord returns the word of how many bytes of window a side takes, and how many it can store to, both multiples of
// PageSize.
func sizesWord(in, out int) uint64 { return uint64(in/PageSize) | uint64(out/PageSize)<<32 }

// peerMute reports whether the peer cannot interrupt this side. It is called when look has returned ready.
func (p *page) peerMute() bool { return ntb.Load64(p.own, idAt)>>32 == mute }

// peerID returns the peer's id, and whether the peer takes interrupts by it. It reports false if the peer has
// none, or has not said so yet.
func (p *page) peerID() (id uint32, interrupts, ok bool) {
	word := ntb.Load64(p.own, idAt)
	above := word >> 32
	return uint32(word), above == interrupted, above == interrupted || above == named
}

// toldBy reports whether the peer whose session was answered has said so.
func (p *page) toldBy() bool { return toldOf(p.own, p.answered) }

// toldOf reports whether the session with an epoch has said so in a page.
func toldOf(page []byte, epoch uint32) bool { return ntb.Load64(page, toldAt) == uint64(epoch)|1<<32 }

// windows returns the bytes of both windows of a session: what the one side takes, and no more than what the
// other one can store to. It is called when look returns ready.
func (p *page) windows() (in, out int) {
	theirs := ntb.Load64(p.own, sizesAt)
	return int(min(uint32(p.sizes), uint32(theirs>>32))) * PageSize,
		int(min(uint32(p.sizes>>32), uint32(theirs))) * PageSize
}

// publish stores this side's words. They are repeated during bring-up, because what is stored
// while the peer's side is not set up vanishes. The heartbeat shows others at this end that the
// session lives, before there is a link.
func (p *page) publish() {
	p.pulse()
	p.peer.Publish64(idAt, p.id)
	p.peer.Publish64(sizesAt, p.sizes)
	if p.told {
		p.peer.Publish64(toldAt, uint64(p.epoch)|1<<32)
	}
	p.peer.Publish64(epochAt, uint64(p.epoch))
	p.peer.Publish64(seenAt, uint64(p.answered)|uint64(p.epoch)<<32)
	p.peer.Publish64(magicAt, pageMagic<<32|pageVersion)
}

// look looks at the peer's words once. The error reports a peer of another version.
func (p *page) look() (step, error) {
	word := ntb.Load64(p.own, magicAt)
	if word == 0 || word == ^uint64(0) {
		return waiting, nil
	}
	if word>>32 != pageMagic {
		return waiting, fmt.Errorf("ntbfixed: %#x is not the beginning of a header page", word)
	}
	if v := uint32(word); v != pageVersion {
		return waiting, fmt.Errorf("%w: the peer has version %d, this side %d", ntb.ErrVersion, v, pageVersion)
	}
	// The answer is read before the epoch. The other way round, a peer that begins again
	// between the two would have the old epoch paired with the new answer.
	seen := ntb.Load64(p.own, seenAt)
	epoch := ntb.Load64(p.own, epochAt)
	return p.step(seen, epoch), nil
}

// step decides what two words of the peer mean.
func (p *page) step(seen, epoch uint64) step {
	theirs := uint32(epoch)
	p.found = theirs
	switch {
	case theirs == 0 || theirs == ^uint32(0) || ntb.Load64(p.own, stateAt) == uint64(theirs)|stateEnded<<32:
		return waiting
	case theirs != p.answered:
		return newPeer
	case seen == uint64(p.epoch)|uint64(theirs)<<32:
		return ready
	}
	return waiting
}

// answer answers the session of the peer that look found. The memory is clear.
func (p *page) answer() {
	p.answered, p.silent = p.found, 0
	p.publish()
}

// clear clears the scratchpads and doorbells of this side.
func (p *page) clear() {
	for off := spadsAt; off < PageSize; off += 8 {
		ntb.Clear64(p.own, off)
	}
}

// same reports whether the page still has the epoch that was answered. After bring-up any goroutine may
// call it.
func (p *page) same() bool { return uint32(ntb.Load64(p.own, epochAt)) == p.answered }

// mark marks the page, so that marked finds out whether it has become zeros.
func (p *page) mark() { binary.LittleEndian.PutUint64(p.own[markAt:], uint64(p.epoch)) }

// marked reports whether a page, perhaps in another mapping, has the mark of this session.
func (p *page) marked(page []byte) bool { return ntb.Load64(page, markAt) == uint64(p.epoch) }

// hasEnded reports whether the peer's session has ended, by its own account or because it has
// begun another.
func (p *page) hasEnded() bool {
	return !p.same() ||
		ntb.Load64(p.own, stateAt) == uint64(p.answered)|stateEnded<<32
}

// behind returns the view of the session in another mapping of this side's page, for hasEnded.
func (p *page) behind(own []byte) *page { return &page{own: own, answered: p.answered} }

// to returns the view of the session in another mapping of the peer's page, for end.
func (p *page) to(peer ntb.Window) *page { return &page{peer: peer, epoch: p.epoch} }

// end announces that this session has ended. The word has the epoch, so that it never ends a later
// one.
func (p *page) end() { p.peer.Publish64(stateAt, uint64(p.epoch)|stateEnded<<32) }

// tick is called at each tick of a session. It changes the heartbeat and returns how many ticks the peer's
// has not changed for.
func (p *page) tick() (silent int) {
	p.pulse()
	p.silent++
	if heard := ntb.Load64(p.own, heartbeatAt); heard != p.heard {
		p.heard, p.silent = heard, 0
	}
	return p.silent
}

// pulse changes the heartbeat.
func (p *page) pulse() {
	p.beat++
	p.peer.Publish64(heartbeatAt, uint64(p.epoch)<<32|p.beat&0xffffffff)
}

// spad returns scratchpad i of this side.
func (p *page) spad(i int) uint32 { return ntb.Load32(p.own, spadsAt+4*i) }

// setPeerSpad stores the peer's scratchpad i.
func (p *page) setPeerSpad(i int, v uint32) { p.peer.Publish32(spadsAt+4*i, v) }

// rung returns how often doorbell i of this side was rung in this session.
func (p *page) rung(i int) uint32 { return ntb.Load32(p.own, bellsAt+4*i) }

// ring stores that the peer's doorbell i was rung n times.
func (p *page) ring(i int, n uint32) { p.peer.Publish32(bellsAt+4*i, n) }
