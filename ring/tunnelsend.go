package ring

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
)

func putWord(b []byte, v uint64) { binary.LittleEndian.PutUint64(b, v) }

// serve implements ownSource.
func (t *tunnel) serve(*outLane) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.push(true)
}

// push sends frames while there is room in the lane. The rest follows when the lane calls
// serve, or when a way is found. What was kept aside moves into the room that this makes.
// The caller holds mu.
func (t *tunnel) push(served bool) {
	for {
		t.pushFrames(served)
		if !t.refill() {
			return
		}
		served = false
	}
}

// pushFrames sends what is in frames. The caller holds mu.
func (t *tunnel) pushFrames(served bool) {
	for !t.ended || t.sayAck {
		f := frame{
			src: t.router.node.id, dst: t.remote, hops: t.router.opts.mostHops(),
			to: t.to, from: t.index, epoch: t.epoch, ack: t.expect.Load(),
		}
		var body []byte
		switch {
		case t.ended:
			f.kind = frameAck
		case t.sayOpen || t.sayAccept:
			f.kind = frameOpen
			if t.sayAccept {
				f.kind = frameAccept
			}
			f.arg = uint32(t.router.opts.Window >> 10)
			f.ask = uint32(t.router.opts.Retention >> 10)
		case t.current() == tunnelOpening:
			return
		case t.next < t.kept.count:
			k := t.kept.at(t.next)
			body = t.kept.body(k)
			f.kind, f.seq, f.length = frameData, t.base+uint32(t.next), uint32(k.n)
			f.bells, f.ask, f.answer = k.bells, k.ask, k.answer
		case t.sayClose && !t.closeSent && t.late.empty():
			f.kind, f.seq = frameClose, t.base+uint32(t.kept.count)
		case t.sayAck:
			f.kind = frameAck
		default:
			return
		}
		if t.link == nil {
			return // reroute goes on
		}
		switch t.link.out[t.lane].own(&f, body, t, served) {
		case putWait, putDown:
			return // serve, or reroute, goes on
		}
		served = false
		t.sent(&f)
	}
}

// sent counts a frame that is in the lane. The caller holds mu.
func (t *tunnel) sent(f *frame) {
	switch f.kind {
	case frameOpen:
		t.sayOpen = false
		return // it carries no acknowledgement
	case frameAccept:
		t.sayAccept = false
		return
	case frameData:
		t.next++
		if t.next > t.high {
			t.high = t.next
			t.trip.sent(f.seq, time.Now())
			t.stats.sent++
			t.stats.sentBytes += uint64(f.length)
		} else {
			t.stats.resent++
		}
	case frameClose:
		t.closeSent = true
	}
	t.sayAck, t.owed = false, 0
	if f.kind == frameAck {
		return
	}
	if t.next == 1 || f.kind == frameClose {
		// This is not done for each frame: otherwise a writer that goes on would
		// put off the repetition of lost frames.
		t.progress = time.Now()
	}
	t.watch(t.patience)
}

// watch ensures that timeout is called within d. A call that is scheduled for later
// does not prevent that, since d is short again after a way was found. The caller
// holds mu.
func (t *tunnel) watch(d time.Duration) {
	at := time.Now().Add(d)
	if t.guarding && !at.Before(t.guardAt) {
		return
	}
	t.guarding, t.guardAt = true, at
	if t.guard == nil {
		t.guard = time.AfterFunc(d, t.timeout)
	} else {
		t.guard.Reset(d)
	}
}

// timeout checks whether acknowledgements come. If none came for long, what is kept
// is sent again, since it was lost and no news said so.
func (t *tunnel) timeout() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.guarding = false
	switch {
	case t.ended:
	case t.current() == tunnelClosed && time.Since(t.closedAt) >= closedLimit:
		t.end()
	case t.current() == tunnelOpening:
		t.sayOpen = true
		t.watch(openEvery)
		t.push(false)
	case t.kept.count == 0 && !t.sayClose:
	case t.link == nil:
		t.watch(grace) // reroute or unreachable ends that
	default:
		if wait := t.patience - time.Since(t.progress); wait > 0 {
			t.watch(wait)
			return
		}
		t.patience = min(2*t.patience, resendMost)
		t.again()
		t.watch(t.patience)
	}
}

// again sends everything that is kept from the beginning. Before it comes what the
// other end must have first, because frames that overtake accept on a new way are
// lost. The caller holds mu.
func (t *tunnel) again() {
	t.trip.stop()
	t.next, t.closeSent = 0, false
	t.sayOpen = t.sayOpen || t.current() == tunnelOpening
	t.sayAccept = t.sayAccept || !t.asked && !t.heard
	t.progress = time.Now()
	t.resends++
	t.push(false)
}

// stir makes the tunnel find its way again after the links have changed, and perhaps
// probe the other end. A goroutine of its own does that, since a goroutine that
// stores to a device that blocks holds mu meanwhile.
func (t *tunnel) stir(probe bool) {
	if probe {
		t.probes.Store(true)
	}
	if t.stirs.Add(1) == 1 {
		go t.settle()
	}
}

// settle does what stir asks for, until there was no further call meanwhile.
func (t *tunnel) settle() {
	for {
		n := t.stirs.Load()
		t.reroute()
		if t.probes.Swap(false) {
			t.probe()
		}
		if t.stirs.CompareAndSwap(n, 0) {
			return
		}
	}
}

// reroute finds the way again after the links have changed. Frames that are under
// way by another way, or by a link that was cut and made again, are sent again by
// the new one. If there is no way for long, the tunnel goes down.
func (t *tunnel) reroute() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.ended {
		return
	}
	link, way, made := t.router.wayTo(t.remote)
	switch {
	case link == nil:
		if t.cut.IsZero() {
			t.cut = time.Now()
			time.AfterFunc(grace, t.unreachable)
		}
		t.link = nil
	case link != t.link || way != t.way || made != t.made:
		t.link, t.way, t.made, t.cut = link, way, made, time.Time{}
		t.patience = t.trip.limit
		t.again()
	}
}

// probe finds out whether the other end still has the tunnel. Its node may have ended,
// and another one may have begun with the same id. A node that has nothing to send
// would not learn of it. The probe is a frame without entries, unless frames are kept,
// which serve as well. The answer is an acknowledgement or a reset. Kept frames that
// have had no answer for long are sent again at once, since they might otherwise wait
// for as long again.
func (t *tunnel) probe() {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.ended:
	case t.current() == tunnelUp && t.kept.count == 0:
		t.begins()
		t.kept.push(retained{})
		t.push(false)
	case t.patience > t.trip.limit && t.link != nil:
		t.patience = t.trip.limit
		t.again()
		t.watch(t.patience)
	}
}

// unreachable ends the tunnel if there was no way for long.
func (t *tunnel) unreachable() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !t.cut.IsZero() && time.Since(t.cut) >= grace && !t.ended {
		t.endFor(fmt.Errorf("%w: %w: %w %v", ntb.ErrLinkDown, link.ErrDown, ErrUnreachable, t.remote))
	}
}

// acknowledged handles the other end's acknowledgement. It returns false if that is
// for frames that were never sent. The caller holds mu.
func (t *tunnel) acknowledged(ack uint32) bool {
	n := int(int32(ack - t.base))
	if n <= 0 || t.ended {
		return true
	}
	end := t.high
	if t.sayClose && t.high == t.kept.count && t.late.empty() {
		end++
	}
	if n > end {
		return false
	}
	t.progress = time.Now()
	t.silent = t.progress
	if t.trip.acknowledged(ack, t.progress) {
		t.patience = t.trip.limit
	}
	closed := n > t.kept.count
	n = min(n, t.kept.count)
	if ask := t.kept.lastAsk(n); ask != 0 {
		t.orders.arrived(ask)
	}
	t.kept.drop(n)
	t.base += uint32(n)
	t.next, t.high = max(0, t.next-n), t.high-n
	if closed {
		t.end()
	}
	return true
}

// owes counts what was taken and must be acknowledged. That happens at once if it
// is much, or came again, and soon otherwise. The caller holds mu.
func (t *tunnel) owes(n int, now bool) {
	t.owed += n
	if now || t.owed >= t.ackAt {
		t.sayAck = true
		return
	}
	if t.acking {
		return
	}
	t.acking = true
	if t.acker == nil {
		t.acker = time.AfterFunc(ackDelay, t.ackLate)
	} else {
		t.acker.Reset(ackDelay)
	}
}

func (t *tunnel) ackLate() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.acking = false
	if t.owed > 0 {
		t.sayAck = true
		t.push(false)
	}
}
