package ring

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/ntb"
)

// Directions of a notification.
const (
	Data  = 0 // there is something to read
	Space = 1 // there is room to write, or the state changed
)

// ErrNoSlot: as many objects are attached to the peer as its window has slots.
var ErrNoSlot = errors.New("ring: no free slot")

// Notified is an object that a peer can notify.
type Notified interface {
	// Notified says that the peer wants a look at memory in this direction. It
	// must not block.
	Notified(direction int)
}

// noteTable is who is attached at which slot, and which words were seen last.
type noteTable struct {
	n      int // slots; immutable
	mu     sync.Mutex
	free   []int // slots that were attached before; guarded by mu
	used   int   // slots 0 to used-1 were attached once; guarded by mu
	groups []atomic.Pointer[noteGroup]
	// Guarded by Peer.pollMu.
	summary []uint32
	closed  bool
}

type noteGroup struct {
	target [groupSlots]atomic.Pointer[target]
	seen   [groupSlots][2]uint32 // guarded by Peer.pollMu
}

type target struct{ Notified }

func (t *noteTable) init(n int) {
	t.n = n
	t.groups = make([]atomic.Pointer[noteGroup], n/groupSlots)
	t.summary = make([]uint32, n/groupSlots)
}

// Attach gives obj a slot, by which the peer can notify it until Detach. Lower
// slots are taken first.
func (p *Peer) Attach(obj Notified) (slot int, err error) {
	t := &p.notes
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case len(t.free) > 0:
		slot = t.free[len(t.free)-1]
		t.free = t.free[:len(t.free)-1]
	case t.used < t.n:
		slot = t.used
		t.used++
		if slot%groupSlots == 0 {
			t.groups[slot/groupSlots].Store(new(noteGroup))
		}
	default:
		return 0, ErrNoSlot
	}
	t.groups[slot/groupSlots].Load().target[slot%groupSlots].Store(&target{obj})
	return slot, nil
}

// Detach frees a slot. A notification that is under way may still reach the
// next object there.
func (p *Peer) Detach(slot int) {
	t := &p.notes
	t.mu.Lock()
	defer t.mu.Unlock()
	t.groups[slot/groupSlots].Load().target[slot%groupSlots].Store(nil)
	t.free = append(t.free, slot)
}

// Notify makes the peer look at what is attached to its slot. What was stored
// before is visible to the peer then. slot must be less than RemoteSlots.
func (p *Peer) Notify(slot, direction int) {
	v := p.number.Add(1)
	note, summary := offNotes+8*slot+4*direction, offSummary+4*(slot/groupSlots)
	if t := p.tunnel(); t != nil {
		t.announce(v, note, summary, offMaster)
		return
	}
	p.out.Publish32(note, v)
	p.out.Publish32(summary, v)
	p.announce(v)
}

// announce changes the peer's master word, and wakes its link goroutine if that
// sleeps. It pairs with settle: either we see the arm here, or it sees the master
// word there.
func (p *Peer) announce(v uint32) {
	if t := p.tunnel(); t != nil {
		t.announce(v, offMaster)
		return
	}
	p.out.Publish32(offMaster, v)
	ntb.Fence()
	rung := p.rung.Load()
	if arm := ntb.Load32(p.in, offArm); arm != rung && p.rung.CompareAndSwap(rung, arm) {
		p.doorbells.Add(1)
		p.dev.RingDoorbell(doorbellBit)
	}
}

// Pending tells that the peer has announced something that nobody here has
// looked at. It is one load of local memory.
func (p *Peer) Pending() bool { return ntb.Load32(p.in, offMaster) != p.seen.Load() }

// Poll looks through the words if something is pending and nobody else is doing
// it. Whoever waits calls it, since the doorbell's goroutine may have to wait
// for a processor.
func (p *Peer) Poll() {
	if p.Pending() && p.pollMu.TryLock() {
		p.lookLocked()
		p.pollMu.Unlock()
	}
}

// settle looks through the words until nothing is pending and the peer knows that
// nobody here looks any more, so that it rings. It ends with the link, whatever the peer
// stores. It is for the link's goroutine, which sleeps after it.
func (p *Peer) settle() {
	for p.settleSome() && p.dev.LinkUp() {
	}
}

// settleRounds is how often settleSome looks at the most, before it lets others have the
// lock.
const settleRounds = 16

// settleSome is settle for some rounds. It reports whether something is pending still.
// A routed peer rings each time: to ask it would take a round trip, and its bell comes in
// the frame of the word.
func (p *Peer) settleSome() (more bool) {
	p.pollMu.Lock()
	defer p.pollMu.Unlock()
	if p.stopped {
		return false // the memory may be gone
	}
	for range settleRounds {
		more = p.lookLocked()
		if !p.Routed() {
			p.sayArmed()
		}
		if more = more || p.Pending(); !more {
			return false
		}
	}
	return more
}

// sayArmed tells the peer that the link's goroutine is about to sleep. The caller
// holds pollMu.
func (p *Peer) sayArmed() {
	p.arm++
	p.out.Publish32(offArm, p.arm)
	if p.caps.Coherent {
		ntb.Fence() // the other side's is in announce
	} else {
		p.dev.Order()
	}
}

// lookLocked looks through the words once, and reports whether more was announced
// meanwhile. The caller holds pollMu.
func (p *Peer) lookLocked() (more bool) {
	master := ntb.Load32(p.in, offMaster)
	// Stored before the scan: what is announced during it is seen by the next
	// round, or by whoever finds Pending.
	p.seen.Store(master)
	if p.notes.closed {
		return false
	}
	more = p.receiveSetup()
	p.setup.creditArrived(p)
	p.scan()
	return more || ntb.Load32(p.in, offMaster) != master
}

// scan finds the notification words that changed.
func (p *Peer) scan() {
	t := &p.notes
	for g := range t.summary {
		v := ntb.Load32(p.in, offSummary+4*g)
		if v == t.summary[g] {
			continue
		}
		t.summary[g] = v
		group := t.groups[g].Load()
		if group == nil {
			continue // a peer that notifies what was never attached
		}
		for i := range groupSlots {
			for direction := range 2 {
				v := ntb.Load32(p.in, offNotes+8*(g*groupSlots+i)+4*direction)
				if v == group.seen[i][direction] {
					continue
				}
				group.seen[i][direction] = v
				if t := group.target[i].Load(); t != nil {
					t.Notified.Notified(direction)
				}
			}
		}
	}
}
