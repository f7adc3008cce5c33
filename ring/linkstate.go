package ring

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
)

// The owner of each host advertises its link state to all others. The frame goes to the
// neighbours, which send on what is newer than what they know. In a mesh they do not send
// it on, since all hosts are neighbours. An owner passes everything on to its members,
// which believe it.

// sideState is the state of one of a process' links, as the process reports it.
type sideState uint8

const (
	stateUnknown sideState = iota
	stateUp
	stateDown
	stateNone // the end of a line
)

func (s sideState) String() string { return [...]string{"unknown", "up", "down", "none"}[s&3] }

// linkState is what a process reports about its links and members: a link-state advertisement.
type linkState struct {
	id     link.ID
	number uint64 // see newer; at first the time in nanoseconds, so that a new process continues upwards
	sides  [2]sideState
	links  [2]uint32 // by side, a number that changes when the link is made again; 0 for none
	// members are the processes that are reached through this one, in order;
	// immutable.
	members []link.ID
}

// memberBytes is the size of a member in the body of a link state: its process
// number, 0 for none.
const memberBytes = 2

// newer reports whether a link state of number n replaces that of number m. Numbers wrap:
// n+1 is newer than n, whatever n is. If two are half of all numbers apart, the greater
// one is newer.
func newer(n, m uint64) bool {
	d := n - m
	return int64(d) > 0 || d == 1<<63 && n > m
}

// supersedeEvery limits how often a process supersedes a link state of itself. Two processes with the same
// id would do so for ever.
const supersedeEvery = 100 * time.Millisecond

// superseding is what a process has to do about a link state of itself that it did not make.
type superseding struct {
	number uint64    // the newest foreign number
	last   time.Time // when it last superseded one
	timer  bool      // a timer is set, to do so again
}

// names reports whether n, which may be nil, names a process of its host.
func (n *linkState) names(id link.ID) bool {
	if n == nil {
		return false
	}
	_, member := slices.BinarySearch(n.members, id)
	return n.id == id || member
}

// named reports whether a link state names a process. Any process may have written other
// mentions of it, such as the source in a frame.
func (r *router) named(id link.ID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.linkStates[id.Host()].names(id)
}

func (n *linkState) side(d Direction) sideState {
	if n == nil {
		return stateUnknown
	}
	return n.sides[d]
}

// originateLocked makes a new link state of this process. The caller holds mu, or has the only
// reference. A member makes none, since its owner's link state covers the host.
func (r *router) originateLocked() {
	if r.opts.Member {
		return
	}
	own := &linkState{id: r.node.id, number: uint64(time.Now().UnixNano())}
	if was := r.linkStates[r.host]; was != nil {
		if !newer(own.number, was.number) {
			own.number = was.number + 1
		}
	}
	for _, d := range []Direction{Left, Right} {
		switch {
		case r.opts.Topology == Mesh:
		case r.opts.neighbour(r.host, d) == 0:
			own.sides[d] = stateNone
		case r.links[linkKey{d, 0}] != nil:
			own.sides[d] = stateUp
			own.links[d] = r.links[linkKey{d, 0}].epoch
		default:
			own.sides[d] = stateDown
		}
	}
	for id := range *r.members.Load() {
		own.members = append(own.members, id)
	}
	slices.Sort(own.members)
	r.linkStates[r.host] = own
}

// receiveLinkState handles a link state from a neighbour. The neighbour may change the
// body meanwhile.
func (r *router) receiveLinkState(l *Link, f *frame.Header, body []byte) {
	host := f.Src.Host()
	n := &linkState{
		id: f.Src, number: f.LinkStateNumber(),
		sides: [2]sideState{sideState(f.States & 3), sideState(f.States >> 8 & 3)},
		links: [2]uint32{f.Arg, f.Ask},
	}
	if f.Dst != 0 || host < 1 || host > r.opts.Hosts || f.Src.Process() == 0 ||
		l.direction == Down || l.direction == Direct && f.Src != l.id {
		r.drop(frame.DropLinkState)
		return
	}
	n.members = readMembers(host, body)
	r.mu.Lock()
	was := r.linkStates[host]
	take := was == nil || newer(n.number, was.number)
	switch {
	case l.direction == Up:
		take = true // the owner is right
	case l.direction == Direct:
		take = r.links[l.key()] == l // no other process advertises it
	case take && host == r.host:
		// It may be of a process that was here before, with a clock ahead of
		// ours, or forged. No process takes our link state until ours is newer.
		take = r.supersedeLocked(n.number)
		r.mu.Unlock()
		if take {
			r.changed(nil, host) // the link over which it came must get ours too
		}
		return
	}
	if take {
		r.linkStates[host] = n
	}
	r.mu.Unlock()
	switch {
	case take:
		r.changed(l, host)
	case was != nil && n.number != was.number:
		l.advertise(host) // the neighbour has an older one
	}
}

// supersedeLocked makes a link state of this process that is newer than number, now or later. It
// reports whether it made one now. The caller holds mu.
func (r *router) supersedeLocked(number uint64) bool {
	o := &r.supersede
	if o.timer {
		if newer(number, o.number) {
			o.number = number
		}
		return false
	}
	if wait := supersedeEvery - time.Since(o.last); wait > 0 {
		o.number, o.timer = number, true
		time.AfterFunc(wait, r.supersedeLate)
		return false
	}
	o.last = time.Now()
	r.originateLocked()
	r.linkStates[r.host].number = number + 1
	return true
}

// supersedeLate does what supersedeLocked has put off.
func (r *router) supersedeLate() {
	r.mu.Lock()
	r.supersede.timer = false
	made := !r.closed && newer(r.supersede.number, r.linkStates[r.host].number) && r.supersedeLocked(r.supersede.number)
	r.mu.Unlock()
	if made {
		r.changed(nil, r.host)
	}
}

// readMembers returns the members of a host that a body names.
func readMembers(host int, body []byte) (ids []link.ID) {
	for i := 0; i < len(body); i += 8 {
		for w := ntb.Load64(body, i); w != 0; w >>= 16 {
			if p := int(w & 0xffff); p != 0 {
				ids = append(ids, link.MakeID(host, p))
			}
		}
	}
	slices.Sort(ids)
	return slices.Compact(ids)
}

// body returns the members in the form in which a link state carries them.
func (n *linkState) body() []byte {
	b := make([]byte, frame.Round8(memberBytes*len(n.members)))
	for i, id := range n.members {
		binary.LittleEndian.PutUint16(b[memberBytes*i:], uint16(id.Process()))
	}
	return b
}

// advertises reports whether a link's neighbour is sent the link state of a host.
func (l *Link) advertises(host int) bool {
	switch l.direction {
	case Up:
		return false
	case Direct:
		return host == l.router.host
	}
	return true
}

// linkStateFor returns the link state of a host that a link's neighbour is sent, or nil if
// none is known. For members of a mesh, both sides in it are up if this process' link to the
// host is up, and else down.
func (l *Link) linkStateFor(host int) *linkState {
	r := l.router
	r.mu.Lock()
	defer r.mu.Unlock()
	n := r.linkStates[host]
	if n == nil || r.opts.Topology != Mesh || l.direction != Down {
		return n
	}
	sent := *n
	sent.sides = [2]sideState{stateDown, stateDown}
	if link, _, _ := r.routeLocked(host, 0); link != nil {
		sent.sides = [2]sideState{stateUp, stateUp}
	}
	return &sent
}

// advertFrame returns the frame that advertises a host to a link's neighbour. ok is false if
// no link state of the host is known: it is advertised when one comes.
func (l *Link) advertFrame(host int) (f frame.Header, body []byte, ok bool) {
	n := l.linkStateFor(host)
	if n == nil {
		return frame.Header{}, nil, false
	}
	body = n.body()
	return frame.Header{
		Kind: frame.LinkState, Hops: 1, Src: n.id, Epoch: uint32(n.number), Seq: uint32(n.number >> 32),
		States: uint32(n.sides[Left]) | uint32(n.sides[Right])<<8,
		Arg:    n.links[Left], Ask: n.links[Right], Length: uint32(len(body)),
	}, body, true
}

// advertise sends a link's neighbour the latest link states of hosts, of those that it is
// sent.
func (l *Link) advertise(hosts ...int) {
	l.adverts.add(slices.DeleteFunc(slices.Clone(hosts), func(h int) bool { return !l.advertises(h) })...)
}
