package frame

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
)

// HeaderBytes is how many bytes of a slot a header takes. The body follows.
const (
	HeaderBytes = 64
	headerWords = HeaderBytes / 8
)

// Version is the version of lanes, frames, tunnels and link states. Neighbours of different
// versions refuse each other at bring-up, so that all nodes that frames reach have the same.
const Version = 6

// Kind is the purpose of a frame.
type Kind uint8

// The kinds.
const (
	Data   = Kind(arq.Data)   // entries, in sequence
	Ack    = Kind(arq.Ack)    // only an acknowledgement, not in sequence
	Open   = Kind(arq.Open)   // makes a tunnel
	Accept = Kind(arq.Accept) // answers open
	Close  = Kind(arq.Close)  // the last frame of a tunnel, in sequence

	Reset     Kind = 6 // the destination has no such tunnel of the source
	LinkState Kind = 7 // from neighbour to neighbour: an advertisement of a process' links
)

// Header is the header of a frame, in a copy of our own.
type Header struct {
	Kind     Kind
	Hops     uint16
	Src, Dst link.ID
	To, From uint32 // numbers of the tunnel at the destination and at the source
	Epoch    uint32
	Seq, Ack uint32
	Length   uint32
	States   uint32 // of the links (link state)
	Arg      uint32 // KiB of window (open, accept); the left link's epoch (link state)
	Ask      uint32 // not 0: for an acknowledgement at once (data); KiB of retention (open, accept); the right link's epoch (link state)
}

// LinkStateNumber returns the 64-bit number of a link state, whose frame has no tunnel.
func (f *Header) LinkStateNumber() uint64 { return uint64(f.Epoch) | uint64(f.Seq)<<32 }

// Window returns the size of the other end's window, from an open or an accept. It returns
// false if no process has such a window.
func (f *Header) Window() (n int, ok bool) {
	n = int(f.Arg) << 10
	return n, n >= link.MinWindow && n <= 1<<30
}

// Size returns how many bytes of a slot the frame takes.
func (f *Header) Size() int { return HeaderBytes + int(f.Length) }

// First returns the word that makes the frame valid in a slot.
func (f *Header) First(hop uint32) uint64 {
	return uint64(hop) | uint64(f.Kind)<<32 | Version<<40 | uint64(f.Hops)<<48
}

// Encode writes everything behind the first word.
func (f *Header) Encode(b *[HeaderBytes]byte) {
	put := binary.LittleEndian.PutUint32
	put(b[8:], uint32(f.Src))
	put(b[12:], uint32(f.Dst))
	put(b[16:], f.To)
	put(b[20:], f.From)
	put(b[24:], f.Epoch)
	put(b[28:], f.Seq)
	put(b[32:], f.Ack)
	put(b[36:], f.Length)
	put(b[40:], f.States)
	put(b[44:], f.Arg)
	put(b[48:], f.Ask)
	clear(b[52:])
}

// Read reads the header of a slot whose first word is first. It reads each
// word once, since the neighbour may change them. It returns false if no process may
// send such a frame.
func Read(slot []byte, first uint64, f *Header) bool {
	var w [headerWords]uint64
	for i := 1; i < headerWords; i++ {
		w[i] = ntb.Load64(slot, 8*i)
	}
	*f = Header{
		Kind: Kind(first >> 32), Hops: uint16(first >> 48),
		Src: link.ID(w[1]), Dst: link.ID(w[1] >> 32),
		To: uint32(w[2]), From: uint32(w[2] >> 32),
		Epoch: uint32(w[3]), Seq: uint32(w[3] >> 32),
		Ack: uint32(w[4]), Length: uint32(w[4] >> 32),
		States: uint32(w[5]), Arg: uint32(w[5] >> 32),
		Ask: uint32(w[6]),
	}
	return uint8(first>>40) == Version && f.Kind >= Data && f.Kind <= LinkState &&
		int64(f.Length) <= int64(len(slot)-HeaderBytes) && f.Length%8 == 0
}

// BadError is the error of a frame that Read refuses. A neighbour that has the same
// version as this side, or it would have no link, sends none of another one.
func BadError(first uint64) error {
	if v := uint8(first >> 40); v != Version {
		return fmt.Errorf("%w: %w: a frame of version %d, the link has %d", link.ErrProtocol, link.ErrVersion, v, Version)
	}
	return fmt.Errorf("%w: bad frame %#x", link.ErrProtocol, first)
}

// Round8 rounds up to a multiple of 8.
func Round8(n int) int { return (n + 7) &^ 7 }

// Reason is why a frame was dropped.
type Reason int

// The reasons.
const (
	DropUnknownNode   Reason = iota // for a process of this host that does not exist, or one of our own that came back
	DropHops                        // went over too many links
	DropNoLink                      // the next link is down
	DropUnknownTunnel               // for a tunnel that does not exist, or of another epoch
	DropForged                      // for a tunnel that belongs to another process
	DropDuplicate                   // came before
	DropGap                         // one before it is missing
	DropBadBody                     // entries outside of the window or of the body
	DropClosed                      // for a tunnel that is closed here
	DropTooMany                     // one process asks for too many tunnels
	DropLinkState                   // a link state that no process may send
	DropSource                      // a member sent it in the name of another
	DropStopped                     // for a process that does not take frames, or through one
	DropStranger                    // asks for a tunnel in the name of a process that no link state names
	numDrops
)

var dropNames = [numDrops]string{
	"unknown node", "too many hops", "no link", "unknown tunnel", "forged tunnel", "duplicate", "gap",
	"bad body", "tunnel closed", "too many tunnels", "bad news", "forged source", "stopped",
	"unknown source",
}

func (why Reason) String() string { return dropNames[why] }

// Drops counts frames that were dropped, by the reason.
type Drops [numDrops]atomic.Uint64

// Count counts a frame.
func (d *Drops) Count(why Reason) { d[why].Add(1) }

// ByReason returns the numbers that are not zero, by the reason.
func (d *Drops) ByReason() map[string]uint64 {
	counts := map[string]uint64{}
	for why := range d {
		if v := d[why].Load(); v > 0 {
			counts[Reason(why).String()] = v
		}
	}
	return counts
}
