package ring

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
)

// The beginning of a link's window is the lanes':
//
//	0x0000 + 256 i  words of lane i, all written by the neighbour:
//	   +0    4  credit: how many of our frames it has taken
//	   +64   4  data arm: changes when its worker sleeps
//	   +128  4  space arm: changes when it waits for room
//	0x1000          queue of lane 0: the slots of frames that come here
//	...             queues of the other lanes
//
// up to the next multiple of 4096. The rest is the direct peer's window.
const (
	laneWords    = 256
	laneCredit   = 0
	laneDataArm  = 64
	laneSpaceArm = 128
	lanesAt      = 4096
)

// lanesBytes returns how many bytes of a window the lanes take.
func (o *Options) lanesBytes() int {
	return (lanesAt + o.Lanes*o.laneBytes() + 4095) &^ 4095
}

func (o *Options) laneBytes() int { return o.Slots * o.slotBytes() }

func (o *Options) slotBytes() int { return frame.HeaderBytes + o.FrameBytes }

// in returns the options for a link with windows of n bytes. A small one has fewer slots.
func (o *Options) in(n int) *Options {
	l := *o
	l.Slots = min(o.Slots, max(o.fewSlots(), n/4/(o.Lanes*o.slotBytes())))
	return &l
}

// fewSlots returns how many slots a lane may have however small the window is. Between two
// hosts lanes carry only what members send, so the direct peer has more.
func (o *Options) fewSlots() int {
	if o.Hosts == 2 {
		return 4
	}
	return 8
}

// CheckWindow returns an error that wraps ErrUnfit if windows of n bytes have no room for a link.
func (o Options) CheckWindow(n int) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	return o.in(n).fits(n)
}

// fits is CheckWindow, of the options for windows of n bytes.
func (o *Options) fits(n int) error {
	if need := o.lanesBytes() + link.MinWindow; n < need {
		return fmt.Errorf("%w: windows of %d bytes, want at least %d for lanes=%d, slots=%d, frame=%d",
			ErrUnfit, n, need, o.Lanes, o.Slots, o.FrameBytes)
	}
	return nil
}

// LinkWindow returns how large each side's window of a link must be for the lanes
// and size bytes for the direct peer, at least MinWindow. The result is a multiple
// of 4096, or 0 if the options are out of range.
func (o Options) LinkWindow(size int) int {
	o, err := o.withDefaults()
	if err != nil {
		return 0
	}
	return o.lanesBytes() + (max(size, link.MinWindow)+4095)&^4095
}

// Scratchpads of a link's bring-up, written by the neighbour. The direct peer needs none.
const (
	linkMagicSpad = 0 // magic<<16 | version, written last
	linkIDSpad    = 1 // its id
	linkShapeSpad = 2 // shapePuts | number of nodes<<16 | topology<<8 | direction
	linkLanesSpad = 3 // version of the direct peer<<24 | most slots<<8 | lanes
	linkFrameSpad = 4 // bytes of a frame's body
	linkSizeSpad  = 5 // size of its inbound window, KiB
	linkEpochSpad = 6 // a random number, not 0
	linkSeenSpad  = 7 // our epoch, once it has seen that and all the above

	linkMagic = 0x4e7c
	shapePuts = 1 << 31 // Options.Puts
)

// Link is a link to a neighbour: lanes for frames, and its direct Peer.
type Link struct {
	// Immutable once the link is up.
	router    *router
	opts      *Options
	dev       ntb.Device
	caps      ntb.Caps
	direction Direction
	id        link.ID
	epoch     uint32
	farEpoch  uint32
	in        []*inLane
	out       []*outLane
	peer      *link.Peer               // set before ready
	ready     bool                     // the direct peer is up; guarded by router.mu
	adverts   *sendQueue[int]          // hosts whose link states are to be sent
	resets    *sendQueue[frame.Header] // each once
	done      chan struct{}            // closed when no lane is used any more

	refs    atomic.Int32  // lanes and direct peer; the device is closed when none is left
	workers atomic.Int32  // workers that have not ended
	idle    chan struct{} // closed when the last worker has ended

	cause link.Cause // why the link went down
}

// Peer returns the neighbour's direct peer.
func (l *Link) Peer() *link.Peer { return l.peer }

// ID returns the neighbour's id.
func (l *Link) ID() link.ID { return l.id }

// Done returns a channel that is closed when the link is down and nothing uses its
// lanes any more.
func (l *Link) Done() <-chan struct{} { return l.done }

// Err returns why the link went down, or nil while it is up.
func (l *Link) Err() error {
	err := l.cause.Get()
	if errors.Is(err, link.ErrDown) {
		return cmp.Or(l.peer.Err(), err) // the direct peer may have found the reason
	}
	return err
}

// Close takes the link down, as if its cable was cut. It does not wait.
func (l *Link) Close() { l.fail(link.ErrClosed) }

// fail takes the link down. The first reason given counts.
func (l *Link) fail(err error) {
	if errors.Is(err, ntb.ErrLinkDown) {
		err = link.ErrDown
	}
	l.cause.Set(err)
	l.dev.Disable()
}

func (l *Link) release() {
	if l.refs.Add(-1) == 0 {
		l.dev.Close()
		l.router.node.wg.Done()
	}
}

// newLink makes a link after checking that the device has what it needs. If it has not, the
// link has no lanes.
func newLink(r *router, dev ntb.Device, d Direction) (*Link, error) {
	out := dev.Outbound()
	windows := min(len(dev.Inbound()), out.Len()) // the same number on both sides
	o := r.opts.in(windows)
	l := &Link{router: r, opts: o, dev: dev, caps: dev.Caps(), direction: d, done: make(chan struct{})}
	if err := o.fits(windows); err != nil {
		return l, err
	}
	if l.caps.Doorbells < o.Lanes+1 {
		return l, fmt.Errorf("%w: %d doorbell bits, want %d", ErrUnfit, l.caps.Doorbells, o.Lanes+1)
	}
	for i := range o.Lanes {
		n := o.laneBytes()
		at := lanesAt + i*n
		words := out.Slice(laneWords*i, laneWords)
		mine := dev.Inbound()[laneWords*i : laneWords*(i+1)]
		in := &inLane{link: l, index: i, slots: dev.Inbound()[at : at+n], words: words, mine: mine, wake: make(chan struct{}, 1)}
		in.next.Store(1)
		l.in = append(l.in, in)
		l.out = append(l.out, newOutLane(l, i, out.Slice(at, n), words, mine))
	}
	return l, nil
}

// bringUpEvery is how often a side looks for the neighbour's scratchpads.
const bringUpEvery = 2500 * time.Microsecond

// bringUp exchanges scratchpads with the neighbour. The words are as many on both sides of
// each version, and check checks the neighbour's.
func (l *Link) bringUp(ctx context.Context, check func() error) (err error) {
	o := &l.router.opts
	x := link.Exchange{
		Device: l.dev,
		Words: []uint32{
			linkMagicSpad: linkMagic<<16 | frame.Version,
			linkIDSpad:    uint32(l.router.node.id),
			linkShapeSpad: l.puts() | uint32(o.Hosts)<<16 | uint32(o.Topology)<<8 | uint32(l.direction),
			linkLanesSpad: link.Version<<24 | uint32(o.Slots)<<8 | uint32(o.Lanes),
			linkFrameSpad: uint32(o.FrameBytes),
			linkSizeSpad:  uint32(len(l.dev.Inbound()) >> 10),
			linkEpochSpad: 0,
			linkSeenSpad:  0,
		},
		Check: check,
		Every: bringUpEvery,
	}
	l.epoch, l.farEpoch, err = x.Run(ctx)
	return err
}

// puts returns shapePuts if this side has Options.Puts for the link.
func (l *Link) puts() uint32 {
	if l.router.opts.Puts && !l.direction.within() {
		return shapePuts
	}
	return 0
}

// Epochs returns the numbers that this side and the neighbour chose for the link. The neighbour has them the other way
// round.
func (l *Link) Epochs() (own, far uint32) { return l.epoch, l.farEpoch }

// refuse informs the neighbour that the device does not do for this side, because of why, which
// it returns. From the words of this side the neighbour finds what differs.
func (l *Link) refuse(ctx context.Context, why error) error {
	_ = l.bringUp(ctx, func() error { // it would be why, or that the neighbour has not come
		if err := l.check(); err == link.ErrNotYet {
			return err
		}
		return why
	})
	return why
}

// check checks the neighbour's scratchpads.
func (l *Link) check() error {
	word := l.dev.Spad(linkMagicSpad)
	if link.Absent(word) {
		return link.ErrNotYet
	}
	if word>>16 == link.Magic {
		return fmt.Errorf("%w: the neighbour brings up a direct link, without lanes", ErrMismatch)
	}
	if word>>16 != linkMagic {
		return fmt.Errorf("%w: scratchpad 0 is %#x, not of this protocol", link.ErrProtocol, word)
	}
	if v := word & 0xffff; v != frame.Version {
		return fmt.Errorf("%w: this side speaks %d, the neighbour %d", link.ErrVersion, frame.Version, v)
	}
	o, dev := &l.router.opts, l.dev
	id, shape := dev.Spad(linkIDSpad), dev.Spad(linkShapeSpad)
	lanes, body, size := dev.Spad(linkLanesSpad), dev.Spad(linkFrameSpad), dev.Spad(linkSizeSpad)
	l.id = link.ID(id)
	out := dev.Outbound()
	differs := func(what string, ours, theirs any) error {
		return fmt.Errorf("%w: %s: %v here, %v at %v", ErrMismatch, what, ours, theirs, l.id)
	}
	switch {
	case link.Absent(id, shape, lanes, body, size):
		return link.ErrNotYet
	case lanes>>24 != link.Version:
		return fmt.Errorf("%w: this side speaks %d, the peer %d", link.ErrVersion, link.Version, lanes>>24)
	case l.id == l.router.node.id:
		return fmt.Errorf("%w: both are %v", ErrSameID, l.id)
	case (l.id.Host() == l.router.host) != l.direction.within():
		if l.direction.within() {
			return fmt.Errorf("%w: %v and %v are not the same host", ErrMismatch, l.router.node.id, l.id)
		}
		return fmt.Errorf("%w: %v and %v are the same host", ErrSameID, l.router.node.id, l.id)
	case shape&shapePuts != l.puts():
		is := map[bool]string{true: "window", false: "requests"}
		return differs("option puts", is[l.puts() != 0], is[shape&shapePuts != 0])
	case int(shape&^shapePuts>>16) != o.Hosts:
		return differs("number of nodes", o.Hosts, shape>>16)
	case Topology(shape>>8) != o.Topology:
		return differs("topology", o.Topology, Topology(shape>>8))
	case Direction(shape) != l.direction.opposite():
		return differs("direction of the link", l.direction, Direction(shape))
	case lanes&(1<<24-1) != uint32(o.Slots)<<8|uint32(o.Lanes):
		return differs("lanes, and slots of each", fmt.Sprint(o.Lanes, ", ", o.Slots), fmt.Sprint(lanes&0xff, ", ", lanes>>8&0xffff))
	case body != uint32(o.FrameBytes):
		return differs("bytes in a frame", o.FrameBytes, body)
	case int(size) != out.Len()>>10:
		return fmt.Errorf("%w: %v says its window has %d KiB, the bridge says %d", ErrMismatch, l.id, size, out.Len()>>10)
	case l.direction <= Right && l.id.Host() != o.neighbour(l.router.host, l.direction):
		return fmt.Errorf("%w: the %v neighbour is %v, host %d belongs there", ErrMismatch, l.direction, l.id,
			o.neighbour(l.router.host, l.direction))
	}
	return nil
}

// start starts the lanes.
func (l *Link) start() {
	l.refs.Store(2) // the lanes, and the direct peer
	l.router.node.wg.Add(1)
	l.adverts, l.resets = &sendQueue[int]{link: l, frame: l.advertFrame}, newResets(l)
	l.workers.Store(int32(len(l.in)))
	l.idle = make(chan struct{})
	for i := range l.in {
		go l.work(i)
	}
	go l.end()
}

// laneGuardEvery is how often lanes are polled where doorbells get lost. A lost
// doorbell holds up all that goes over the lane.
const laneGuardEvery = 100 * time.Millisecond

// guardRounds limits how often a lane is drained each time. By then the neighbour has
// been asked to ring.
const guardRounds = 16

// end cleans up when the workers have ended. Until then it makes up for doorbells
// that get lost.
func (l *Link) end() {
	var tick <-chan time.Time
	if l.caps.LossyDoorbells {
		t := time.NewTicker(laneGuardEvery)
		defer t.Stop()
		tick = t.C
	}
	for up := true; up; {
		select {
		case <-l.idle:
			up = false
		case <-tick:
			for i, in := range l.in {
				for range guardRounds {
					if !in.ready() || !in.drain() || !l.dev.LinkUp() || in.sleep() {
						break
					}
				}
				in.pollOnward()
				l.out[i].poll()
			}
		}
	}
	// What came before is handled first. Then others learn that the link is down.
	for _, in := range l.in {
		in.close()
		in.pollOnward()
	}
	l.router.linkDown(l)
	for _, out := range l.out {
		out.close()
	}
	close(l.done)
	l.release()
}
