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

// A Step is the result of a look during bring-up.
type Step int

const (
	// Waiting means that the peer has not written or answered enough.
	Waiting Step = iota
	// NewPeer means that the peer has begun a session that was not answered. The caller
	// clears the memory and then calls Answer.
	NewPeer
	// Ready means that both sides have answered each other's session.
	Ready
)

// Page is one session's view of the two header pages: its side's, which the peer writes, and
// the peer's, which this side writes. One goroutine brings it up, and then keeps it alive. It
// needs nothing but memory.
type Page struct {
	own   []byte     // immutable
	peer  ntb.Window // immutable
	epoch uint32     // of this session; immutable
	id    uint64     // the word of this side's id; constant after the first Publish
	sizes uint64     // that of the sizes of its windows; likewise
	told  bool       // SetTold was called; likewise

	// Of that goroutine.
	found    uint32 // epoch of the peer's session at the last look
	answered uint32 // epoch of the peer's session that was answered; 0 for none
	beat     uint64 // own heartbeat
	heard    uint64 // the peer's last
	silent   int    // ticks since then
}

// NewPage returns the view of a session. Each session of a side must have another epoch than
// the one before, and none 0 or all ones. own must have PageSize bytes, and so must peer.
func NewPage(own []byte, peer ntb.Window, epoch uint32) *Page {
	return &Page{own: own, peer: peer, epoch: epoch}
}

// SetID has Publish tell the peer this side's id, and whether this side takes interrupts by it. It is
// called before the first Publish.
func (p *Page) SetID(id uint32, interrupts bool) {
	p.id = uint64(id) | named<<32
	if interrupts {
		p.id = uint64(id) | interrupted<<32
	}
}

// SetMute has Publish tell the peer that this side has no id and cannot interrupt it. It is called before the first
// Publish.
func (p *Page) SetMute() { p.id = mute << 32 }

// PeerMute reports whether the peer cannot interrupt this side. It is called when Look has returned Ready.
func (p *Page) PeerMute() bool { return ntb.Load64(p.own, idAt)>>32 == mute }

// PeerID returns the peer's id, and whether the peer takes interrupts by it. It reports false if the peer has
// none, or has not said so yet.
func (p *Page) PeerID() (id uint32, interrupts, ok bool) {
	word := ntb.Load64(p.own, idAt)
	above := word >> 32
	return uint32(word), above == interrupted, above == interrupted || above == named
}

// SetTold has Publish tell the peer that somebody says when this side's process ends. It is called before the first
// Publish.
func (p *Page) SetTold() { p.told = true }

// Told reports whether the peer whose session was answered has said so.
func (p *Page) Told() bool { return toldOf(p.own, p.answered) }

// toldOf reports whether the session with an epoch has said so in a page.
func toldOf(page []byte, epoch uint32) bool { return ntb.Load64(page, toldAt) == uint64(epoch)|1<<32 }

// SetSizes has Publish tell the peer how many bytes of window this side takes, and how many it can store
// to, both multiples of PageSize. It is called before the first Publish.
func (p *Page) SetSizes(in, out int) { p.sizes = uint64(in/PageSize) | uint64(out/PageSize)<<32 }

// Sizes returns the bytes of both windows of a session: what the one side takes, and no more than what the
// other one can store to. It is called when Look returns Ready.
func (p *Page) Sizes() (in, out int) {
	theirs := ntb.Load64(p.own, sizesAt)
	return int(min(uint32(p.sizes), uint32(theirs>>32))) * PageSize,
		int(min(uint32(p.sizes>>32), uint32(theirs))) * PageSize
}

// Publish stores this side's words. They are repeated during bring-up, because what is stored
// while the peer's side is not set up vanishes. The heartbeat shows others at this end that the
// session lives, before there is a link.
func (p *Page) Publish() {
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

// Look looks at the peer's words once. The error reports a peer of another version.
func (p *Page) Look() (Step, error) {
	word := ntb.Load64(p.own, magicAt)
	if word == 0 || word == ^uint64(0) {
		return Waiting, nil
	}
	if word>>32 != pageMagic {
		return Waiting, fmt.Errorf("ntbfixed: %#x is not the beginning of a header page", word)
	}
	if v := uint32(word); v != pageVersion {
		return Waiting, fmt.Errorf("%w: the peer has version %d, this side %d", ntb.ErrVersion, v, pageVersion)
	}
	// The answer is read before the epoch. The other way round, a peer that begins again
	// between the two would have the old epoch paired with the new answer.
	seen := ntb.Load64(p.own, seenAt)
	epoch := ntb.Load64(p.own, epochAt)
	return p.step(seen, epoch), nil
}

// step decides what two words of the peer mean.
func (p *Page) step(seen, epoch uint64) Step {
	theirs := uint32(epoch)
	p.found = theirs
	switch {
	case theirs == 0 || theirs == ^uint32(0) || ntb.Load64(p.own, stateAt) == uint64(theirs)|stateEnded<<32:
		return Waiting
	case theirs != p.answered:
		return NewPeer
	case seen == uint64(p.epoch)|uint64(theirs)<<32:
		return Ready
	}
	return Waiting
}

// Answer answers the session of the peer that Look found. The memory is clear.
func (p *Page) Answer() {
	p.answered, p.silent = p.found, 0
	p.Publish()
}

// clear clears the scratchpads and doorbells of this side.
func (p *Page) clear() {
	for off := spadsAt; off < PageSize; off += 8 {
		ntb.Clear64(p.own, off)
	}
}

// Same reports whether the page still has the epoch that was answered. After bring-up any goroutine may
// call it.
func (p *Page) Same() bool { return uint32(ntb.Load64(p.own, epochAt)) == p.answered }

// mark marks the page, so that marked finds out whether it has become zeros.
func (p *Page) mark() { binary.LittleEndian.PutUint64(p.own[markAt:], uint64(p.epoch)) }

// marked reports whether a page, perhaps in another mapping, has the mark of this session.
func (p *Page) marked(page []byte) bool { return ntb.Load64(page, markAt) == uint64(p.epoch) }

// Ended reports whether the peer's session has ended, by its own account or because it has
// begun another.
func (p *Page) Ended() bool {
	return !p.Same() ||
		ntb.Load64(p.own, stateAt) == uint64(p.answered)|stateEnded<<32
}

// behind returns the view of the session in another mapping of this side's page, for Ended.
func (p *Page) behind(own []byte) *Page { return &Page{own: own, answered: p.answered} }

// to returns the view of the session in another mapping of the peer's page, for End.
func (p *Page) to(peer ntb.Window) *Page { return &Page{peer: peer, epoch: p.epoch} }

// End announces that this session has ended. The word has the epoch, so that it never ends a later
// one.
func (p *Page) End() { p.peer.Publish64(stateAt, uint64(p.epoch)|stateEnded<<32) }

// Tick is called at each tick of a session. It changes the heartbeat and returns how many ticks the peer's
// has not changed for.
func (p *Page) Tick() (silent int) {
	p.pulse()
	p.silent++
	if heard := ntb.Load64(p.own, heartbeatAt); heard != p.heard {
		p.heard, p.silent = heard, 0
	}
	return p.silent
}

// pulse changes the heartbeat.
func (p *Page) pulse() {
	p.beat++
	p.peer.Publish64(heartbeatAt, uint64(p.epoch)<<32|p.beat&0xffffffff)
}

// Spad returns scratchpad i of this side.
func (p *Page) Spad(i int) uint32 { return ntb.Load32(p.own, spadsAt+4*i) }

// SetPeerSpad stores the peer's scratchpad i.
func (p *Page) SetPeerSpad(i int, v uint32) { p.peer.Publish32(spadsAt+4*i, v) }

// Rung returns how often doorbell i of this side was rung in this session.
func (p *Page) Rung(i int) uint32 { return ntb.Load32(p.own, bellsAt+4*i) }

// Ring stores that the peer's doorbell i was rung n times.
func (p *Page) Ring(i int, n uint32) { p.peer.Publish32(bellsAt+4*i, n) }
