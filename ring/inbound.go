package ring

import (
	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// inbound is the memory that the other end of a tunnel stores to. The goroutines that take frames of lanes store it.
type inbound struct {
	// Immutable.
	woken chan struct{} // capacity 1: the other end has called Wake
	first int           // line of the region

	// mu guards the following. It is held while a frame is stored.
	mu      lock.Mutex[lock.Receive]
	recv    arq.Receiver
	memory  sinkMemory // zero after close
	watched watches
}

func (in *inbound) init(window int) {
	in.woken, in.first = make(chan struct{}, 1), link.RegionLine(window)
	in.watched = watches{}
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

// published wakes those that watch the word at off. The caller holds mu.
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
func (in *inbound) take(r *router, f *frame.Header, body []byte) (v arq.Verdict, expects uint32, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	v = in.recv.Judge(f.Seq)
	switch {
	case v == arq.Duplicate:
		r.drop(frame.DropDuplicate)
	case v == arq.Gap:
		r.drop(frame.DropGap)
	case f.Kind == frame.Close:
		in.recv.Took()
	case in.memory.in == nil:
		r.drop(frame.DropClosed)
		in.recv.Took()
	case !in.memory.apply(body):
		r.drop(frame.DropBadBody)
		return v, 0, false
	default:
		in.recv.Took()
	}
	return v, in.recv.Expects(), true
}
