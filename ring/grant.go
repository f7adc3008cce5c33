package ring

import (
	"sync/atomic"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// grant is what the other end of a tunnel stores here: memory, scratchpads and doorbells.
// The goroutines that take frames of lanes store it.
type grant struct {
	spads [tunnelSpads]atomic.Uint32
	bells [tunnelBells]chan struct{} // capacity 1

	// mu guards the following. It is held while a frame is stored.
	mu      lock.Mutex[lock.Receive]
	recv    arq.Receiver
	memory  sinkMemory // zero after close
	watched watches
	taken   uint64 // frames that were stored
}

func (g *grant) init(window int) {
	for i := range g.bells {
		g.bells[i] = make(chan struct{}, 1)
	}
	g.watched = watches{}
	in := ntb.AlignedBytes(window)
	g.memory = sinkMemory{
		in: in, win: ntb.MappedWindow(in, ntb.Cacheable), spad: g.storeSpad, published: g.published,
	}
}

func (g *grant) storeSpad(i int, v uint32) bool {
	if i >= tunnelSpads {
		return false
	}
	g.spads[i].Store(v)
	return true
}

// published wakes those that watch the word at off. The caller holds mu.
func (g *grant) published(off int) {
	for _, w := range g.watched[off/64] {
		w.Wake()
	}
}

// close releases the memory. Nothing is stored after it.
func (g *grant) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.memory = sinkMemory{}
}

// take handles a frame in sequence: first the stores, then the doorbells. It returns what
// became of the frame, and the sequence number that is expected next. ok is false if no
// honest end could have sent the body.
func (g *grant) take(r *router, f *frame, body []byte) (v arq.Verdict, expects uint32, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	v = g.recv.Judge(f.seq)
	switch {
	case v == arq.Duplicate:
		r.drop(dropDuplicate)
	case v == arq.Gap:
		r.drop(dropGap)
	case f.kind == frameClose:
		g.recv.Took()
	case g.memory.in == nil:
		r.drop(dropClosed)
		g.recv.Took()
	case !g.memory.apply(body):
		r.drop(dropBadBody)
		return v, 0, false
	default:
		g.recv.Took()
		g.taken++
		g.ring(f.bells)
	}
	return v, g.recv.Expects(), true
}

// ring rings doorbells. The caller holds mu.
func (g *grant) ring(bells uint32) {
	if bells == 0 {
		return
	}
	// What was stored must be visible before a channel is found full. The goroutine
	// that takes the token then sees it (pair S10, with WaitDoorbell).
	ntb.Fence()
	for bit := range tunnelBells {
		if bells&(1<<bit) != 0 {
			select {
			case g.bells[bit] <- struct{}{}:
			default: // rung already
			}
		}
	}
}
