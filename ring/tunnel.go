package ring

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

const (
	tunnelBells = 8
	tunnelSpads = 16
)

// tunnelState is that of a tunnel's device. It only grows.
type tunnelState uint32

const (
	tunnelOpening tunnelState = iota // the other end has not answered
	tunnelUp
	tunnelDown   // disabled here, closed there, or unreachable
	tunnelClosed // closed here
)

func (s tunnelState) String() string { return [...]string{"opening", "up", "down", "closed"}[s&3] }

// tunnel is a bridge of frames to a node that is not at the other end of a
// cable: an ntb.Device. Stores are gathered in an open frame, which is sent at the
// next Publish. What is sent is kept until the other end has acknowledged it, so
// that it can be sent again by another way.
type tunnel struct {
	// Immutable.
	router *router
	remote ID
	index  uint32 // its number here
	epoch  uint32 // the same at both ends
	lane   int
	asked  bool          // this node made it
	down   chan struct{} // closed with tunnelDown
	opened chan struct{} // closed when the other end's number and window are known

	state atomic.Uint32 // a tunnelState; stored under mu

	// The end that receives.
	spads   [tunnelSpads]atomic.Uint32 // stored by the lane's worker
	bells   [tunnelBells]chan struct{} // capacity 1
	expect  atomic.Uint32              // sequence number expected; stored under rmu
	rmu     sync.Mutex                 // held while a frame is stored
	memory  sinkMemory                 // guarded by rmu
	in      []byte                     // the same memory, for Inbound; nil after Close
	gone    bool                       // in may not be touched any more; guarded by rmu
	watched watches                    // guarded by rmu
	got     uint64                     // frames taken; guarded by rmu

	mu      sync.Mutex // before lanes' and the router's
	out     ntb.Window // constant after opened
	to      uint32     // its number at the other end; constant after opened
	kept    retention  // guarded by mu
	late    backlog    // stores behind those of kept; guarded by mu
	line    line       // who has data and waits for room; guarded by mu
	base    uint32     // sequence number of the first frame kept; guarded by mu
	next    int        // of the frames kept, the next to be sent; guarded by mu
	high    int        // of the frames kept, the first that was never sent; guarded by mu
	link    *Link      // where frames go; nil: no way; guarded by mu
	way     Direction  // and which side they take from this host; guarded by mu
	made    uint64     // which links those are, see router.madeLocked; guarded by mu
	cut     time.Time  // since when there is no way; guarded by mu
	resends uint32     // path: how often it began again; guarded by mu
	bell    uint32     // doorbells that found no frame; guarded by mu

	sayOpen, sayAccept, sayAck bool   // frames to be sent out of sequence; guarded by mu
	sayClose                   bool   // the last frame is to be sent; guarded by mu
	closeSent                  bool   // since the last beginning; guarded by mu
	heard                      bool   // the other end is up as well; guarded by mu
	ended                      bool   // nothing more is sent, nor awaited; guarded by mu
	owed                       int    // bytes not acknowledged to the other end; guarded by mu
	ackAt                      int    // how much makes an acknowledgement of its own; guarded by mu
	orders                     orders // guarded by mu
	ask                        uint32 // the last of them, to be asked when a frame is free; guarded by mu
	answer                     uint32 // request to be answered when a frame is free; guarded by mu

	silent   time.Time     // since when the other end has acknowledged nothing of what is kept; guarded by mu
	progress time.Time     // last acknowledgement, or when the first frame that waits for one was sent; guarded by mu
	patience time.Duration // how long without one until frames are sent again; guarded by mu
	guarding bool          // guard is set; guarded by mu
	guardAt  time.Time     // for when; guarded by mu
	guard    *time.Timer   // calls timeout; guarded by mu
	acking   bool          // acker is set; guarded by mu
	acker    *time.Timer   // guarded by mu

	err   error       // why the link went down, if there is more to say; constant then
	stats tunnelStats // guarded by mu
}

type tunnelStats struct{ sent, sentBytes, resent uint64 }

var (
	_ ntb.Device   = (*tunnel)(nil)
	_ ntb.WordSink = (*tunnel)(nil)
)

// Times of a tunnel.
const (
	resendFirst = 200 * time.Millisecond // without progress
	resendMost  = 3200 * time.Millisecond
	openEvery   = 50 * time.Millisecond
	ackDelay    = 5 * time.Millisecond
)

// maxUnsent is how many frames wait for the lane at the most, before data waits for its
// turn. More would only make what is stored next late: the peer's credit,
// say, behind a megabyte of data in a lane of small slots that everyone wants.
const maxUnsent = 16

func alignedBytes(n int) []byte { return ntb.AlignedBytes(n) }

func newTunnel(r *router, remote ID, epoch uint32) *tunnel {
	t := &tunnel{
		router: r, remote: remote, epoch: epoch,
		down: make(chan struct{}), opened: make(chan struct{}),
		in: alignedBytes(r.opts.Window), kept: newRetention(r.opts.Retention), base: 1,
		patience: resendFirst, ackAt: r.opts.Retention / 4,
	}
	t.expect.Store(1)
	for i := range t.bells {
		t.bells[i] = make(chan struct{}, 1)
	}
	t.watched = watches{}
	t.memory = sinkMemory{
		in: t.in, win: ntb.MappedWindow(t.in, ntb.Coherent), spad: t.storeSpad, published: t.published,
	}
	return t
}

func (t *tunnel) current() tunnelState { return tunnelState(t.state.Load()) }

func (t *tunnel) storeSpad(i int, v uint32) bool {
	if i >= tunnelSpads {
		return false
	}
	t.spads[i].Store(v)
	return true
}

// Caps implements ntb.Device. The other end's memory is not on this machine, for
// all that is known, and Order needs no fences.
func (t *tunnel) Caps() ntb.Caps {
	return ntb.Caps{Backend: "ring", Doorbells: tunnelBells, Scratchpads: tunnelSpads}
}

func (t *tunnel) Inbound() []byte      { return t.in }
func (t *tunnel) Outbound() ntb.Window { return t.out }

func (t *tunnel) Spad(i int) uint32 {
	if !t.LinkUp() {
		return gone
	}
	return t.spads[i].Load()
}

func (t *tunnel) LinkUp() bool { return t.current() == tunnelUp }

// WaitDoorbell implements ntb.Device. The caller's look comes after it (pair S10).
func (t *tunnel) WaitDoorbell(bit int) error {
	if err := t.linkError(); err != nil {
		return err
	}
	select {
	case <-t.bells[bit]:
	case <-t.down:
	}
	return t.linkError()
}

func (t *tunnel) linkError() error {
	switch t.current() {
	case tunnelClosed:
		return ntb.ErrClosed
	case tunnelDown:
		if t.err != nil {
			return t.err
		}
		return ntb.ErrLinkDown
	}
	return nil
}

func (t *tunnel) DMA(int) ntb.DMAChannel { panic("ring: a tunnel has no DMA channels") }

// Store implements ntb.Sink: the bytes join the open frame. Like all stores it never
// waits: what finds no room is kept aside, and follows in its order.
func (t *tunnel) Store(off int, p []byte) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current() != tunnelUp {
		return
	}
	n := 0
	if t.late.empty() {
		n = t.store(off, p, false)
	}
	t.late.bytes(off+n, p[n:])
}

// store puts the first bytes of p into frames, as many as there is room for, and returns
// how many. data leaves some of the room. The caller holds mu.
func (t *tunnel) store(off int, p []byte, data bool) (n int) {
	for n < len(p) {
		need := min(t.router.opts.FrameBytes, entryHeader+min(minPiece, round8(len(p)-n)))
		if !t.gather(need, data) {
			return n
		}
		k := min(len(p)-n, t.kept.left()-entryHeader, maxEntryBytes)
		b := t.kept.extend(entryHeader + round8(k))
		putWord(b, entryWord(entryData, off+n, k))
		copy(b[entryHeader:], p[n:n+k])
		clear(b[entryHeader+k:])
		n += k
	}
	return n
}

// Store64 implements ntb.WordSink.
func (t *tunnel) Store64(off int, v uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.word(entryStore, off, v, 8)
}

// Publish implements ntb.Sink: it ends the open frame and sends it.
func (t *tunnel) Publish(off int, v uint64, width int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.word(entryPublish, off, v, width)
	t.flush()
}

// SetPeerSpad implements ntb.Device.
func (t *tunnel) SetPeerSpad(i int, v uint32) {
	if i < 0 || i >= tunnelSpads {
		panic("ring: scratchpad out of range")
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.word(entrySpad, i, uint64(v), 4)
	t.flush()
}

// word stores a word if the link is up. The caller holds mu.
func (t *tunnel) word(kind entryKind, off int, v uint64, width int) {
	if t.current() == tunnelUp && !(t.late.empty() && t.putWord(kind, off, v, width)) {
		t.late.word(kind, off, v, width)
	}
}

// putWord puts a word into the open frame, if there is room. The caller holds mu.
func (t *tunnel) putWord(kind entryKind, off int, v uint64, width int) bool {
	if !t.gather(wordEntry, false) {
		return false
	}
	b := t.kept.extend(wordEntry)
	putWord(b, entryWord(kind, off, width))
	putWord(b[entryHeader:], v)
	return true
}

// gather sees to an open frame with n bytes left. It reports false if there is no room:
// data leaves some of it for words. The caller holds mu.
func (t *tunnel) gather(n int, data bool) bool {
	size := t.router.opts.FrameBytes
	for {
		switch unsent := t.kept.count - t.high; {
		case t.kept.open && t.kept.left() >= n:
			return true
		case t.kept.open:
			t.endFrame()
			t.pushFrames(false)
		// What could not be sent yet takes more stores.
		case unsent > 0 && t.kept.reopen(n, size):
		case unsent >= maxUnsent || data && !t.takesData():
			return false
		case t.kept.begin(size) || !data && t.kept.begin(min(size, wordsRoom)):
		default:
			return false
		}
	}
}

// endFrame makes a frame of the open body, if there is one. The caller holds mu.
func (t *tunnel) endFrame() {
	if t.kept.open {
		t.begins()
		t.kept.end()
	}
}

// begins is called before a frame is kept. The caller holds mu.
func (t *tunnel) begins() {
	if t.kept.count == 0 {
		t.silent = time.Now()
	}
}

// flush ends the open frame and sends it. The caller holds mu.
func (t *tunnel) flush() {
	if t.kept.open {
		t.endFrame()
		t.push(false)
	}
}

// refill moves what was kept aside into frames, as far as there is room, and then lets
// the next one in line store. It reports whether there is something to send. The caller
// holds mu.
func (t *tunnel) refill() (more bool) {
	was := t.kept.count + t.high
	for !t.late.empty() && !t.ended {
		s := t.late.next()
		if s.kind == entryData {
			n := t.store(s.off, s.data, false)
			s.off, s.data = s.off+n, s.data[n:]
			if len(s.data) > 0 {
				break
			}
		} else if s.kind != 0 && !t.putWord(s.kind, s.off, s.v, s.n) {
			break
		}
		t.late.pop()
	}
	t.endFrame()
	t.signal()
	t.wakeNext()
	return t.kept.count+t.high != was
}

// RingDoorbell implements ntb.Device. It never waits: the bit goes with a frame
// that is not sent, or in one of its own, which takes no room.
func (t *tunnel) RingDoorbell(bit int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.current() == tunnelUp {
		t.ring(bit)
	}
}

// ring is RingDoorbell. The caller holds mu.
func (t *tunnel) ring(bit int) {
	t.bell |= 1 << bit
	t.endFrame()
	t.signal()
	t.push(false)
}

// signal puts doorbells, and an order to ask for or to answer, into a frame, behind
// everything that was stored before. The caller holds mu.
func (t *tunnel) signal() {
	if t.bell|t.ask|t.answer == 0 || t.ended || !t.late.empty() {
		return
	}
	switch {
	case t.kept.count > t.high:
		f := t.kept.at(t.kept.count - 1)
		f.bells |= t.bell
		// Of several orders, and of several answers, the last says it all.
		if t.ask != 0 {
			f.ask = t.ask
		}
		if t.answer != 0 {
			f.answer = t.answer
		}
	case t.kept.count < maxFrames-2:
		t.begins()
		t.kept.push(retained{bells: t.bell, ask: t.ask, answer: t.answer})
	default:
		return // when acknowledgements come
	}
	t.bell, t.ask, t.answer = 0, 0, 0
}

// Disable implements ntb.Device. What was sent before arrives before the other end
// sees it.
func (t *tunnel) Disable() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.finish(tunnelDown)
}

// finish ends the device here, and has the other end told. The caller holds mu.
func (t *tunnel) finish(s tunnelState) {
	if t.current() >= s {
		return
	}
	t.flush()
	t.sayClose = !t.ended
	t.goDown(s)
	t.push(false)
}

// goDown takes the state on to s. The caller holds mu.
func (t *tunnel) goDown(s tunnelState) {
	was := t.current()
	if was >= s {
		return
	}
	t.state.Store(uint32(s)) // first: who wakes must find it
	if was < tunnelDown {
		t.kept.open = false
		close(t.down)
		t.orders.end()
		for _, w := range t.line {
			w.Wake()
		}
	}
}

// end forgets what was to be sent: nobody is there to get it. The caller holds mu.
func (t *tunnel) end() {
	t.ended = true
	t.sayOpen, t.sayAccept, t.sayClose = false, false, false
	t.kept.open = false
	t.base += uint32(t.kept.count)
	t.kept.drop(t.kept.count)
	t.late.clear()
	t.next, t.high = 0, 0
	t.goDown(tunnelDown)
	t.tryRemove()
}

// Close implements ntb.Device. It does not wait: what was sent, and that it is the
// end, is sent on and again until it is acknowledged.
func (t *tunnel) Close() error {
	t.mu.Lock()
	t.finish(tunnelClosed)
	t.mu.Unlock()
	t.rmu.Lock()
	t.gone = true
	t.memory.in, t.memory.win = nil, ntb.Window{}
	t.rmu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tryRemove()
	return nil
}

// tryRemove takes the tunnel out of the table if it is closed and done. The caller
// holds mu.
func (t *tunnel) tryRemove() {
	if t.ended && t.current() == tunnelClosed {
		for _, timer := range []*time.Timer{t.guard, t.acker} {
			if timer != nil {
				timer.Stop()
			}
		}
		t.router.tunnels.remove(t)
	}
}

// tunnelTable finds tunnels by their numbers.
type tunnelTable struct {
	mu    sync.Mutex
	slots atomic.Pointer[[]*tunnel] // replaced under mu
	none  sync.Cond                 // there may be none left; mu
}

func (tt *tunnelTable) init() {
	tt.none.L = &tt.mu
	tt.slots.Store(&[]*tunnel{})
}

// add gives t a number and a lane.
func (tt *tunnelTable) add(t *tunnel) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	old := *tt.slots.Load()
	i := 0
	for i < len(old) && old[i] != nil {
		i++
	}
	slots := make([]*tunnel, max(len(old), i+1))
	copy(slots, old)
	t.index = uint32(i)
	t.lane = (i + rand.IntN(MaxLanes)) % t.router.opts.Lanes
	slots[i] = t
	tt.slots.Store(&slots)
}

func (tt *tunnelTable) remove(t *tunnel) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	old := *tt.slots.Load()
	if old[t.index] != t {
		return
	}
	slots := make([]*tunnel, len(old))
	copy(slots, old)
	slots[t.index] = nil
	tt.slots.Store(&slots)
	tt.none.Broadcast()
}

func (tt *tunnelTable) get(i uint32) *tunnel {
	slots := *tt.slots.Load()
	if uint64(i) >= uint64(len(slots)) {
		return nil
	}
	return slots[i]
}

func (tt *tunnelTable) all() []*tunnel {
	var all []*tunnel
	for _, t := range *tt.slots.Load() {
		if t != nil {
			all = append(all, t)
		}
	}
	return all
}

// askedBy is how many tunnels another node made.
func (tt *tunnelTable) askedBy(remote ID) (n int) {
	for _, t := range tt.all() {
		if t.remote == remote && !t.asked {
			n++
		}
	}
	return n
}

// byEpoch is the tunnel that another node made, nil if there is none.
func (tt *tunnelTable) byEpoch(remote ID, epoch uint32) *tunnel {
	for _, t := range tt.all() {
		if t.remote == remote && t.epoch == epoch && !t.asked {
			return t
		}
	}
	return nil
}
