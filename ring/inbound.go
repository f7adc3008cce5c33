package ring

import (
	"sync/atomic"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// inbound is what the other end of a tunnel stores here: memory, scratchpads and doorbells.
// The goroutines that take frames of lanes store it.
type inbound struct {
	spads [tunnelSpads]atomic.Uint32
	bells [tunnelBells]chan struct{} // capacity 1

	// mu guards the following. It is held while a frame is stored.
	mu      lock.Mutex[lock.Receive]
	recv    arq.Receiver
	memory  sinkMemory // zero after close
	watched watches
	taken   uint64 // frames that were stored
}

func (in *inbound) init(window int) {
	for i := range in.bells {
		in.bells[i] = make(chan struct{}, 1)
	}
	in.watched = watches{}
	mem := ntb.AlignedBytes(window)
	in.memory = sinkMemory{
		in: mem, win: ntb.MappedWindow(mem, ntb.Cacheable), spad: in.storeSpad, published: in.published,
	}
}

func (in *inbound) storeSpad(i int, v uint32) bool {
	if i >= tunnelSpads {
		return false
	}
	in.spads[i].Store(v)
	return true
}

// published wakes those that watch the word at off. The caller holds mu.
func (in *inbound) published(off int) {
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

// take handles a frame in sequence: first the stores, then the doorbells. It returns what
// became of the frame, and the sequence number that is expected next. ok is false if no
// honest end could have sent the body.
func (in *inbound) take(r *router, f *frame, body []byte) (v arq.Verdict, expects uint32, ok bool) {
	in.mu.Lock()
	defer in.mu.Unlock()
	v = in.recv.Judge(f.seq)
	switch {
	case v == arq.Duplicate:
		r.drop(dropDuplicate)
	case v == arq.Gap:
		r.drop(dropGap)
	case f.kind == frameClose:
		in.recv.Took()
	case in.memory.in == nil:
		r.drop(dropClosed)
		in.recv.Took()
	case !in.memory.apply(body):
		r.drop(dropBadBody)
		return v, 0, false
	default:
		in.recv.Took()
		in.taken++
		in.ring(f.bells)
	}
	return v, in.recv.Expects(), true
}

// ring rings doorbells. The caller holds mu.
func (in *inbound) ring(bells uint32) {
	if bells == 0 {
		return
	}
	// What was stored must be visible before a channel is found full. The goroutine
	// that takes the token then sees it (pair S10, with WaitDoorbell).
	ntb.Fence()
	for bit := range tunnelBells {
		if bells&(1<<bit) != 0 {
			select {
			case in.bells[bit] <- struct{}{}:
			default: // rung already
			}
		}
	}
}
