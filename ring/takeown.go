package ring

import (
	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/ntb"
)

// pollForWorker does what the lane's worker would do, on the worker of the other side, unless another
// goroutine is doing that.
func (l *inLane) pollForWorker() (worked bool) {
	l.polls.Add(1)
	if !l.link.dev.LinkUp() {
		l.wakeWorker() // its worker ends
		return false
	}
	if !l.mu.TryLock() {
		return false
	}
	ready := !l.closed && !l.final && l.ready()
	l.mu.Unlock()
	if ready {
		worked = l.drain()
		l.pollOnward()
	}
	if out := l.link.out[l.index]; out.creditCame() {
		worked = true
		out.poll()
	}
	return worked
}

// poll takes frames on a goroutine that waits for what they bring, unless another one is doing
// that. It takes those alone that are for this process and whose answers go back over the link. So
// the caller stores nothing for other neighbours, which might keep it. It reports whether it has
// taken any.
func (l *inLane) poll() (worked bool) {
	l.polls.Add(1)
	if !l.mu.TryLock() {
		return false
	}
	defer l.mu.Unlock()
	if l.closed || l.final {
		return false
	}
	batch := max(1, l.link.opts.Slots/2) // as drain does
	taken, left := 0, false
	for taken < l.link.opts.Slots {
		var took bool
		if took, left = l.takeOwn(); !took {
			break
		}
		if taken++; taken%batch == 0 {
			l.answer()
		}
	}
	if worked = taken > 0; worked {
		l.answer()
	}
	to := l.link.router.onward(l.link, 0)
	if left || l.link.out[l.index].roomCame() || worked && to != nil && to.out[l.index].waits.Load() {
		l.wakeWorker()
	}
	return worked
}

// takeOwn is take for a frame of this process that comes over the link by which it is answered.
// left reports whether there is another one, which the worker has to take. The caller holds mu.
func (l *inLane) takeOwn() (took, left bool) {
	next := l.next.Load()
	slot := l.slot(next)
	first := ntb.Load64(slot, 0)
	if uint32(first) != uint32(next) || l.blocked.Load() {
		return false, false
	}
	l.link.raceAcquire()
	if !frame.Read(slot, first, &l.frame) {
		return false, true
	}
	f := &l.frame
	if kind := arq.Kind(f.Kind); f.Dst != l.link.router.node.id || kind != arq.Data && kind != arq.Ack {
		return false, true
	}
	t := l.link.router.tunnels.get(f.To)
	if t == nil || t.Epoch != f.Epoch || t.Remote != f.Src || t.via.Load() != l.link {
		return false, true
	}
	body, there := l.body(slot)
	if !there {
		return false, false
	}
	l.waitAt(nil)
	l.forwards.Store(false)
	l.link.router.deliver(l, f, body)
	l.release(next)
	return true, false
}
