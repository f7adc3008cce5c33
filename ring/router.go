package ring

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/tunnel"
	"github.com/ntbnet/ntbnet/ntb"
)

// router is a process' part in a fabric of several hosts.
type router struct {
	// Immutable.
	node    *Node
	opts    Options
	host    int
	asks    context.Context // of makePeer; ends with endAsks, when the process is closed
	endAsks context.CancelFunc

	// sides are the links that are up, by direction, for frames to be forwarded;
	// stored under mu. Empty in a mesh.
	sides [2]atomic.Pointer[Link]
	// pollsBoth are set while the worker of a side's lane polls that of the other side as well.
	pollsBoth [MaxLanes]atomic.Bool
	drops     frame.Drops
	// members are the links Down that are up; replaced under mu.
	members atomic.Pointer[map[link.ID]*Link]
	// version changes after links and link states have changed. Callers that cache a next
	// hop compare it.
	version atomic.Uint32

	mu         lock.Mutex[lock.Router]
	links      map[linkKey]*Link      // guarded by mu
	linkStates map[int]*linkState     // by host; guarded by mu
	supersede  superseding            // guarded by mu
	nextChange chan struct{}          // closed and replaced at the next change of links or link states; guarded by mu
	closed     bool                   // guarded by mu
	asking     map[link.ID]*asking    // peers being made here; guarded by mu
	routed     map[link.ID]*tunnelEnd // with peers over them; guarded by mu
	tunnels    tunnelTable

	tunnelConfig tunnel.Config // immutable
}

// asking is a peer that makePeer makes.
type asking struct {
	done chan struct{}
	peer *link.Peer
	err  error
}

func (r *router) drop(why frame.Reason) { r.drops.Count(why) }

func newRouter(n *Node, o Options) *router {
	r := &router{
		node: n, opts: o, host: n.id.Host(),
		links: map[linkKey]*Link{}, linkStates: map[int]*linkState{}, nextChange: make(chan struct{}),
		asking: map[link.ID]*asking{}, routed: map[link.ID]*tunnelEnd{},
	}
	r.tunnelConfig = tunnel.Config{
		ID: n.id, FrameBytes: o.FrameBytes, Window: o.Window, Retention: o.Retention,
		Hops: o.mostHops(), Drops: &r.drops, AfterFunc: time.AfterFunc,
	}
	r.asks, r.endAsks = context.WithCancel(context.Background())
	r.tunnels.init()
	r.members.Store(&map[link.ID]*Link{})
	r.originateLocked()
	return r
}

// shut ends the tunnels that are being made. New links and tunnels are refused from then on.
func (r *router) shut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	r.endAsks()
}

func (r *router) isShut() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed
}

// Link brings up a link to the neighbour in direction d over dev, of which it takes
// ownership. The link has lanes, by which frames are forwarded, and the neighbour's
// direct Peer. Link waits for the other side until ctx ends.
//
// In a ring or a line d is Left or Right, the neighbour's end of the link has the
// other direction, and the neighbour must be the host at that place. In a mesh d is
// Direct at both ends. Between two processes of one host it is Up at the member's
// end and Down at the other end. There may be any number of links Down, to
// different processes.
//
// When a link has gone down, Link may be called again with a new device for the
// same neighbour. While a link of that direction is up, a second one is an error.
//
// The device needs Options.Lanes+1 doorbell bits. Its window needs room for the lanes and MinWindow; see [Options.LinkWindow].
//
// Its errors are ErrVersion, ErrMismatch and ErrSameID, on both sides, ErrUnfit, ErrDown,
// ErrClosed, and that of ctx. ErrUnfit is returned when the neighbour has been informed, or ctx
// has ended.
func (n *Node) Link(ctx context.Context, dev ntb.Device, d Direction) (*Link, error) {
	r := n.router
	if r.isShut() {
		dev.Close()
		return nil, link.ErrClosed
	}
	if !r.opts.leads(d) {
		dev.Close()
		return nil, fmt.Errorf("ring: a link of this node of a %v does not lead %v", r.opts.Topology, d)
	}
	l, err := newLink(r, dev, d)
	if err == nil {
		err = l.bringUp(ctx, l.check)
	} else {
		err = l.refuse(ctx, err)
	}
	if err == nil {
		err = r.linkUp(l)
	}
	if err != nil {
		dev.Close()
		return nil, err
	}
	p, err := n.UpOver(link.Bridge(newSplit(l, l.opts.lanesBytes())), l.id)
	if err != nil {
		l.fail(err)
		<-l.done
		return nil, err
	}
	l.peer = p
	r.mu.Lock()
	l.ready = true
	r.mu.Unlock()
	return l, nil
}

// linkUp puts a link whose other side has answered into the table and starts it.
func (r *router) linkUp(l *Link) error {
	r.mu.Lock()
	key := l.key()
	switch {
	case r.closed:
		r.mu.Unlock()
		return link.ErrClosed
	case l.direction == Down && len(*r.members.Load()) >= r.opts.mostMembers():
		r.mu.Unlock()
		return fmt.Errorf("ring: %d processes are reached through this one already: %w", r.opts.mostMembers(), ErrTooMany)
	case r.links[key] != nil && r.links[key].dev.LinkUp():
		other := r.links[key].id
		r.mu.Unlock()
		return fmt.Errorf("ring: the link %v is up already, to %v", l.direction, other)
	}
	switch n := r.linkStates[l.id.Host()]; {
	case l.direction == Up:
		clear(r.linkStates) // the neighbour sends all link states that there are
	case l.direction == Direct && n != nil && n.id != l.id:
		delete(r.linkStates, l.id.Host()) // of a process that was there before
	}
	l.start()
	r.links[key] = l
	r.setLocked(l, l)
	r.originateLocked()
	all := make([]int, 0, len(r.linkStates))
	for host := range r.linkStates {
		all = append(all, host)
	}
	r.mu.Unlock()
	l.advertise(all...)
	r.changed(l, r.touched(l)...)
	return nil
}

// setLocked makes now the link of l's direction, for frames to be forwarded; nil
// for none. It is called after the change of links. The caller holds mu.
func (r *router) setLocked(l, now *Link) {
	switch l.direction {
	case Left, Right:
		r.sides[l.direction].Store(now)
	case Down:
		members := map[link.ID]*Link{}
		for _, l := range r.links {
			if l.direction == Down {
				members[l.id] = l
			}
		}
		r.members.Store(&members)
	}
}

// touched returns the hosts whose link states change with a link.
func (r *router) touched(l *Link) []int {
	if l.direction == Direct {
		return []int{r.host, l.id.Host()} // members get it as the link state of that host
	}
	return []int{r.host}
}

// linkDown removes a link from the table.
func (r *router) linkDown(l *Link) {
	r.mu.Lock()
	if key := l.key(); r.links[key] == l {
		delete(r.links, key)
		r.setLocked(l, nil)
		r.originateLocked()
	}
	r.mu.Unlock()
	r.changed(nil, r.touched(l)...)
}

// changed is called after a change of what is known of hosts. It advertises
// these, except over the link from which the change came, and has tunnels find their routes
// again. It waits for none of that, since a device may block.
func (r *router) changed(from *Link, hosts ...int) {
	r.version.Add(1)
	r.mu.Lock()
	links := make([]*Link, 0, len(r.links))
	for _, l := range r.links {
		links = append(links, l)
	}
	close(r.nextChange)
	r.nextChange = make(chan struct{})
	r.mu.Unlock()
	for _, l := range links {
		if l != from {
			l.advertise(hosts...)
		}
	}
	for _, t := range r.tunnels.all() {
		t.RequestReroute(slices.Contains(hosts, t.Remote.Host()))
	}
}
