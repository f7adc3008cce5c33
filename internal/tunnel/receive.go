package tunnel

import (
	"fmt"
	"slices"
	"time"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// Take handles a frame that came for the tunnel, from its other end. It does not wait. f and body
// are the caller's.
func (t *Tunnel) Take(f *frame.Header, body []byte) {
	switch f.Kind {
	case frame.Accept:
		t.accepted(f)
	case frame.Reset:
		t.Drop()
	case frame.Ack:
		t.arrived(arq.Arrival{Kind: arq.Ack, Ack: f.Ack})
	default:
		t.receive(f, body)
	}
}

// receive handles a frame in sequence.
func (t *Tunnel) receive(f *frame.Header, body []byte) {
	switch s := t.State(); {
	case s == arq.Opening:
		return // it comes again; the answer to open was lost or is late
	case s.Over() && t.err != nil:
		t.router.Reset(f) // the other end does not know that this one gave up
		return
	}
	v, expects, ok := t.inbound.take(t.config.Drops, f, body)
	if !ok {
		t.router.Reset(f)
		t.Step(func(*arq.End, time.Time) { t.broken(fmt.Errorf("%w: bad frame from %v", link.ErrProtocol, t.Remote)) })
		return
	}
	t.arrived(arq.Arrival{Kind: arq.Kind(f.Kind), Ack: f.Ack, Verdict: v, Expects: expects, Bytes: f.Size(), Asks: f.Ask != 0})
}

// arrived handles what a frame carries besides what it stores: acknowledgements, of ours and
// for theirs. Then it sends what waited for these.
func (t *Tunnel) arrived(a arq.Arrival) {
	t.mu.Lock()
	defer t.unlockAndSend()
	now, agreed := time.Now(), t.arq.Agreed()
	if !t.arq.Arrived(a, now) {
		t.broken(fmt.Errorf("%w: %v acknowledges what was not sent", link.ErrProtocol, t.Remote))
		return
	}
	if !agreed && t.arq.Agreed() { // the first frame from the process that asked
		close(t.opened)
	}
	t.push(now)
	t.delivered()
}

// broken ends a tunnel whose other end violates the protocol. The caller holds mu.
func (t *Tunnel) broken(err error) { t.endFor(fmt.Errorf("%w: %w", ntb.ErrLinkDown, err)) }

// endFor ends the tunnel with an error. The caller holds mu.
func (t *Tunnel) endFor(err error) {
	if t.State() < arq.Draining {
		t.err = err // before the state, by which others know that it may be read
	}
	t.arq.Abort()
	t.changed()
}

// accepted handles the answer to open.
func (t *Tunnel) accepted(f *frame.Header) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := f.Window(); !ok || t.arq.State() != arq.Opening {
		return
	}
	t.meet(f)
	t.arq.Accepted(t.config.ackAt(f))
	t.changed()
	close(t.opened)
}

// inbound is the memory that the other end of a tunnel stores to. The goroutines that take frames of lanes store it.
type inbound struct {
	// Immutable.
	woken chan struct{} // capacity 1: the other end has called Wake
	first int           // line of the region

	// mu guards the following. It is held while a frame is stored.
	mu      lock.Mutex[lock.Receive]
	recv    arq.Receiver
	memory  sinkMemory            // zero after close
	watched map[int][]*link.Watch // by the line's number in the window
}

func (in *inbound) init(window int) {
	in.woken, in.first = make(chan struct{}, 1), link.RegionLine(window)
	in.watched = map[int][]*link.Watch{}
	mem := ntb.AlignedBytes(window)
	in.memory = sinkMemory{in: mem, win: ntb.MappedWindow(mem, ntb.Cacheable), published: in.published}
}

// wake ends a Wait. What was stored must be visible before the channel is found full: the
// goroutine that takes the token then sees it (pair S10).
func (in *inbound) wake() {
	ntb.Fence()
	select {
	case in.woken <- struct{}{}:
	default:
	}
}

// published is called when the word at off has been stored. It wakes the waits for that word. The caller holds mu.
func (in *inbound) published(off int) {
	if off == 0 { // the last word of Wake
		in.wake()
	}
	for _, w := range in.watched[off/64] {
		w.Wake()
	}
}

// close releases the memory. Nothing is stored after it.
func (in *inbound) close() {
	in.mu.Lock()
	defer in.mu.Unlock()
	in.memory = sinkMemory{}
}

// take handles a frame in sequence. It returns what
// became of the frame, and the sequence number that is expected next. ok is false if no
// honest end could have sent the body.
func (in *inbound) take(drops *frame.Drops, f *frame.Header, body []byte) (v arq.Verdict, expects uint32, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	v = in.recv.Judge(f.Seq)
	switch {
	case v == arq.Duplicate:
		drops.Count(frame.DropDuplicate)
	case v == arq.Gap:
		drops.Count(frame.DropGap)
	case f.Kind == frame.Close:
		in.recv.Took()
	case in.memory.in == nil:
		drops.Count(frame.DropClosed)
		in.recv.Took()
	case !in.memory.apply(body):
		drops.Count(frame.DropBadBody)
		return v, 0, false
	default:
		in.recv.Took()
	}
	return v, in.recv.Expects(), true
}

// Expects returns the number of the next frame in sequence that the tunnel takes.
func (t *Tunnel) Expects() uint32 {
	t.inbound.mu.Lock()
	defer t.inbound.mu.Unlock()
	return t.inbound.recv.Expects()
}

// Watch implements link.Frames.
func (t *Tunnel) Watch(w *link.Watch) {
	t.inbound.mu.Lock()
	defer t.inbound.mu.Unlock()
	for i, line := range w.Lines {
		if i == 0 || line != w.Lines[0] {
			t.inbound.watched[t.inbound.first+line] = append(t.inbound.watched[t.inbound.first+line], w)
		}
	}
}

// Unwatch implements link.Frames.
func (t *Tunnel) Unwatch(w *link.Watch) {
	t.inbound.mu.Lock()
	defer t.inbound.mu.Unlock()
	m := t.inbound.watched
	for _, line := range w.Lines {
		line += t.inbound.first
		m[line] = slices.DeleteFunc(m[line], func(o *link.Watch) bool { return o == w })
		if len(m[line]) == 0 {
			delete(m, line)
		}
	}
}
