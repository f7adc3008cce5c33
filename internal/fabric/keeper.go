package fabric

import (
	"fmt"
	"time"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/heapmem"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/ring"
)

// kind is what a link leads to.
type kind int

const (
	toProcess kind = iota // of this host
	toOwner               // of this host's links, from a member
	toMember              // of this host, from the owner
	toNode                // another host's, by a wire
)

// want returns what a process asks for that makes the link.
func (k kind) want() string {
	return [...]string{greeting.WantProcess, greeting.WantUplink, greeting.WantUplink, greeting.WantLink}[k]
}

// linkEnd is this process' end of a link. Fields that are not immutable are guarded by keeper.mu.
//
// A link to a process of this host, or to a member, is made once, by the side that needs it. One to the owner, or by a
// wire, is made, and made again, as long as both run. Over Unix sockets either side may begin, by connecting a cable. A
// node begins as soon as its neighbour runs. If the neighbour does not run, the node sleeps, since the neighbour will
// begin. If both begin, the node with the lower number goes on.
type linkEnd struct {
	kind    kind      // immutable
	wire    spec.Wire // immutable; zero but toNode
	to      int       // the node at the other end, or this node itself; immutable
	process int       // there, 0 for any; immutable
	users   []int     // of which that must be, if not nil; immutable
	first   bool      // this node goes on if both begin; immutable
	by      opener    // of one that is made again; immutable

	pid, uid int // of a member, as it and as the kernel say; immutable

	hurry chan struct{} // has keep try again now, instead of after its pause; of one element
	tried chan struct{} // toProcess: closed when it is up, or will not be

	state state           // of the link that is made; the one before may be up meanwhile
	peer  *link.Peer      // from the last time that the link came up
	ring  *ring.Link      // likewise; nil for toProcess
	half  *heapmem.Device // its device, with option puts
	err   error           // why it is not up
	ups   int             // how often it came up
	since time.Time       // when its state last changed
}

// keeper has the links of a process, which are made, come up and end by state.after alone.
type keeper struct {
	mu        lock.Mutex[lock.Hosts]
	links     []*linkEnd           // by wires, or to the owner; immutable
	members   map[int]*linkEnd     // links to members that are up, by the process there; guarded by mu
	processes map[link.ID]*linkEnd // links that dials use; guarded by mu
	making    map[target]*linkEnd  // links that are being made for dials; guarded by mu
	changed   chan struct{}        // closed and replaced at every change of a link but those to processes; guarded by mu
	closed    bool                 // guarded by mu
}

func newKeeper() keeper {
	return keeper{
		members: map[int]*linkEnd{}, processes: map[link.ID]*linkEnd{}, making: map[target]*linkEnd{},
		changed: make(chan struct{}),
	}
}

// check returns an error unless it is the process at the other end that has an id.
func (l *linkEnd) check(id link.ID) error {
	if id.Host() == l.to && (l.process == 0 && l.kind != toMember || id.Process() == l.process) {
		return nil
	}
	return fmt.Errorf("%w: %v answered for %v", greeting.ErrMismatch, id, link.MakeID(l.to, l.process))
}

// direction returns the direction of the link from this node, of one that is no toProcess.
func (l *linkEnd) direction() ring.Direction {
	switch l.kind {
	case toMember:
		return ring.Down
	case toOwner:
		return ring.Up
	}
	return map[spec.Side]ring.Direction{spec.Left: ring.Left, spec.Right: ring.Right, spec.Direct: ring.Direct}[l.wire.Side]
}

// up reports whether the link is up. The caller holds mu.
func (l *linkEnd) up() bool {
	return l.peer != nil && l.peer.Up() && (l.ring == nil || l.ring.Err() == nil)
}

// desertedAfter is how long after a try a neighbour that was refused counts as gone. It tries
// again within lastPause.
const desertedAfter = 2 * lastPause

// deserted reports whether nobody uses the other end of a bridge, as far as one can know. The
// caller holds mu.
func (l *linkEnd) deserted() bool {
	return l.state == asking && !l.bySocket() && (!Misfit(l.err) || time.Since(l.since) > desertedAfter)
}

// shown returns the state for others. The caller holds mu.
func (l *linkEnd) shown() string {
	switch {
	case l.up():
		return status.Up
	case l.state == up: // keep is about to learn that it has ended
		return status.Down
	}
	return l.state.String()
}

// step changes the state of a link by an event, and wakes all that wait for a change. It returns false if the event may not
// happen in this state. The caller holds mu.
func (k *keeper) step(l *linkEnd, e event) bool {
	next, ok := l.state.after(e, l.first)
	if ok && next != l.state {
		l.state, l.since = next, time.Now()
		if next == absent || next == making {
			l.err = nil // it was that of a process which has gone
		}
		if l.kind != toProcess {
			k.change()
		}
	}
	return ok
}

// note is step for a caller that does not hold mu. err is why the link is not up, if that is known.
func (k *keeper) note(l *linkEnd, e event, err error) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	if err != nil {
		l.err = err
	}
	return k.step(l, e)
}

// change wakes all that wait for a change of a link. The caller holds mu.
func (k *keeper) change() {
	close(k.changed)
	k.changed = make(chan struct{})
}
