package link

import (
	"errors"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// An Event is what a notification announces. Its number is that of the word on the wire.
type Event uint8

const (
	Data   Event = iota // there is something to read
	Space               // there is room to write, or the state changed
	events              // how many there are
)

func (e Event) String() string { return [...]string{"data", "space"}[e] }

// ErrNoSlot reports that as many objects are attached to the peer as its window has
// slots.
var ErrNoSlot = errors.New("link: no free slot")

// Notified is an object that a peer can notify.
type Notified interface {
	// Notified is called when the peer has announced e: memory is to be checked. It is
	// called by the link's goroutine, or by any wait that polls, such as a Read of another
	// object, while looks.mu is held. So it must not wait, and only tries the locks of
	// the object's calls.
	Notified(e Event)
}

// noteTable records which object is attached at which slot, and which words were
// last seen.
type noteTable struct {
	n      int // slots; immutable
	mu     lock.Mutex[lock.Notes]
	free   []int // slots that were attached before; guarded by mu
	used   int   // slots 0 to used-1 were attached at some time; guarded by mu
	groups []atomic.Pointer[noteGroup]
	// Guarded by looks.mu.
	summary []uint32
	closed  bool
}

type noteGroup struct {
	target [groupSlots]atomic.Pointer[target]
	seen   [groupSlots][events]uint32 // guarded by looks.mu
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

// Attached returns how many slots are taken.
func (p *Peer) Attached() int {
	t := &p.notes
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.used - len(t.free)
}

// Detach frees a slot. A notification that is under way may still reach the next
// object there.
func (p *Peer) Detach(slot int) {
	t := &p.notes
	t.mu.Lock()
	defer t.mu.Unlock()
	t.groups[slot/groupSlots].Load().target[slot%groupSlots].Store(nil)
	t.free = append(t.free, slot)
}

// Notify announces e to the object that is attached to a slot of the peer. What was
// stored before is visible to the peer by then. slot must be less than RemoteSlots.
func (p *Peer) Notify(slot int, e Event) {
	lock.Device()
	p.path.Wake(p.number.Add(1), [2]int{offNote(slot, e), offSummary + 4*(slot/groupSlots)})
}

// announce has the peer look.
func (p *Peer) announce() {
	lock.Device()
	p.path.Wake(p.number.Add(1), [2]int{})
}

// Rung returns how many doorbells this process rang.
func (p *Peer) Rung() uint64 {
	if p.bridge == nil {
		return 0
	}
	return p.bridge.doorbells.Load()
}

// Pending reports whether the peer has announced something that no goroutine here
// has looked at. It is one load of local memory.
func (p *Peer) Pending() bool { return ntb.Load32(p.in, offMaster) != p.looks.seen.Load() }

// Poll looks through the words if something is pending and no other goroutine is
// doing so. Every waiter calls it, since the doorbell's goroutine may have to wait
// for a processor.
func (p *Peer) Poll() {
	if p.Pending() && p.looks.mu.TryLock() {
		p.lookLocked()
		p.looks.mu.Unlock()
	}
}

// drain looks through the words until nothing is pending and the peer knows that no
// goroutine here looks any more, so that it rings. It ends with the link, whatever the
// peer stores. The link's goroutine calls it, and sleeps after it.
func (p *Peer) drain() {
	for p.drainSome() && p.path.LinkUp() {
	}
}

// drainRounds is how often drainSome looks at most, before it lets other goroutines
// have the lock.
const drainRounds = 16

// drainSome is drain limited to some rounds. It reports whether something is still
// pending. It parks once: what is found later was announced before the peer saw that, which then stands, or
// the peer has answered it, and Wait returns.
func (p *Peer) drainSome() (more bool) {
	p.looks.mu.Lock()
	defer p.looks.mu.Unlock()
	if p.looks.stopped {
		return false // the memory may be gone
	}
	for i := range drainRounds {
		more = p.lookLocked()
		if i == 0 {
			p.path.Park() // looks again below
		}
		if more = more || p.Pending(); !more {
			return false
		}
	}
	return more
}

// lookLocked looks through the words once, and reports whether more was announced
// meanwhile. The caller holds looks.mu.
func (p *Peer) lookLocked() (more bool) {
	master := ntb.Load32(p.in, offMaster)
	// This is stored before the scan. So what is announced during the scan is seen
	// by the next round, or by a goroutine that calls Pending.
	p.looks.seen.Store(master)
	if p.notes.closed {
		return false
	}
	more = p.receiveSetup()
	p.setup.creditArrived(p)
	p.scan()
	return more || ntb.Load32(p.in, offMaster) != master
}

// scan finds the notification words that have changed.
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
			continue // a peer that notifies an object that was never attached
		}
		for i := range groupSlots {
			for e := range events {
				v := ntb.Load32(p.in, offNote(g*groupSlots+i, e))
				if v == group.seen[i][e] {
					continue
				}
				group.seen[i][e] = v
				if t := group.target[i].Load(); t != nil {
					t.Notified.Notified(e)
				}
			}
		}
	}
}
