package ring

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// router is a node's part in a fabric of several hosts.
type router struct {
	// Immutable.
	node *Node
	opts Options
	host int

	// sides are the links up, by direction, for frames that go on; stored under
	// mu. Empty in a mesh.
	sides [2]atomic.Pointer[Link]
	drops [numDrops]atomic.Uint64

	mu    sync.Mutex
	links map[int]*Link // by the neighbour's host and direction, see linkKey; guarded by mu

	news    map[int]*news  // by host; guarded by mu
	closed  bool           // guarded by mu
	asking  map[ID]*asking // tunnels being made here; guarded by mu
	routed  map[ID]*Peer   // peers over tunnels; guarded by mu
	tunnels tunnelTable

	// trace, of tests, is told of each frame that this node takes from a lane, or is
	// about to publish in one. Lanes are locked meanwhile. Set before there are links.
	trace func(f frame, sent bool)
	hook  chan *tunnel // of tests: gets what others make, in place of a Peer
}

// asking is a call of Peer that others wait for.
type asking struct {
	done chan struct{}
	peer *Peer
	err  error
}

// Reasons to drop a frame.
type dropReason int

const (
	dropUnknownNode   dropReason = iota // for a process of this host that is not there, or of our own that came back
	dropHops                            // went over too many links
	dropNoLink                          // the next link is down
	dropUnknownTunnel                   // for a tunnel that is not there, or of another epoch
	dropForged                          // for a tunnel that belongs to another node
	dropDuplicate                       // came before
	dropGap                             // one before it is missing
	dropBadBody                         // entries outside of the window or of the body
	dropClosed                          // for a tunnel that is closed here
	dropTooMany                         // one node asks for too many tunnels
	dropNews                            // news that no node may send
	numDrops
)

var dropNames = [numDrops]string{
	"unknown node", "too many hops", "no link", "unknown tunnel", "forged tunnel", "duplicate", "gap",
	"bad body", "tunnel closed", "too many tunnels", "bad news",
}

func (r *router) drop(why dropReason) { r.drops[why].Add(1) }

// Join makes the node part of a fabric of several hosts. It must be called once,
// after Register and before Link and Peer. The node's id must have a host of 1
// to o.Nodes.
func (n *Node) Join(o Options) error {
	o, err := o.withDefaults()
	if err != nil {
		return err
	}
	host := n.id.Host()
	if host < 1 || host > o.Nodes {
		return fmt.Errorf("ring: host %d of %d", host, o.Nodes)
	}
	r := &router{
		node: n, opts: o, host: host,
		links: map[int]*Link{}, news: map[int]*news{},
		asking: map[ID]*asking{}, routed: map[ID]*Peer{},
	}
	r.tunnels.init()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.router != nil {
		return errors.New("ring: the node has joined already")
	}
	r.ownNewsLocked()
	n.router = r
	return nil
}

func (n *Node) joined() (*router, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.closed {
		return nil, ErrClosed
	}
	if n.router == nil {
		return nil, errors.New("ring: the node has not joined a fabric")
	}
	return n.router, nil
}

// linkKey tells links apart: by direction, in a mesh by the neighbour's host.
func linkKey(d Direction, host int) int {
	if d == Direct {
		return host + 2
	}
	return int(d)
}

// Link brings up a link to the neighbour in direction d over dev, which it owns
// from then on: the lanes that frames are forwarded by, and the neighbour's
// direct Peer. It waits for the other side until ctx ends. In a ring or a line d
// is Left or Right, the neighbour's end of the link is the other one, and the
// neighbour must be the host of that place; in a mesh d is Direct at both ends.
//
// When a link has gone down, Link may be called again with a new device for the
// same neighbour. While a link of that direction is up, a second one is an
// error.
//
// The device needs Options.Lanes+1 doorbell bits and 16 scratchpads. Its window
// needs room for the lanes and MinWindow; [Options.LinkWindow] says how much.
//
// Its errors are ErrVersion, ErrMismatch and ErrSameID, on both sides, ErrDown,
// ErrClosed, and that of ctx.
func (n *Node) Link(ctx context.Context, dev ntb.Device, d Direction) (*Link, error) {
	r, err := n.joined()
	if err != nil {
		dev.Close()
		return nil, err
	}
	if (d == Direct) != (r.opts.Topology == Mesh) || d > Direct {
		dev.Close()
		return nil, fmt.Errorf("ring: a link of a %v does not lead %v", r.opts.Topology, d)
	}
	l, err := newLink(r, dev, d)
	if err == nil {
		err = l.bringUp(ctx)
	}
	if err == nil {
		err = r.linkUp(l)
	}
	if err != nil {
		dev.Close()
		return nil, err
	}
	p, err := n.up(ctx, newSplit(l, r.opts.lanesBytes()), l.id)
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
	key := linkKey(l.direction, l.id.Host())
	switch {
	case r.closed:
		r.mu.Unlock()
		return ErrClosed
	case r.links[key] != nil && r.links[key].dev.LinkUp():
		other := r.links[key].id
		r.mu.Unlock()
		return fmt.Errorf("ring: the link %v is up already, to %v", l.direction, other)
	}
	l.start()
	r.links[key] = l
	if l.direction != Direct {
		r.sides[l.direction].Store(l)
	}
	all := make([]int, 0, len(r.news))
	r.ownNewsLocked()
	for host := range r.news {
		all = append(all, host)
	}
	r.mu.Unlock()
	l.news.add(all...)
	r.changed(l, r.host)
	return nil
}

// linkDown takes a link out of the table.
func (r *router) linkDown(l *Link) {
	r.mu.Lock()
	key := linkKey(l.direction, l.id.Host())
	if r.links[key] == l {
		delete(r.links, key)
		if l.direction != Direct {
			r.sides[l.direction].Store(nil)
		}
		r.ownNewsLocked()
	}
	r.mu.Unlock()
	r.changed(nil, r.host)
}

// onward is the link by which a frame goes on that came over from, nil if it is
// down or there is none: a frame never turns round.
func (r *router) onward(from *Link) *Link {
	if from.direction == Direct {
		return nil
	}
	return r.sides[from.direction.opposite()].Load()
}

// route is the way to a host: the link, nil if there is none, and how many hops.
// Shorter first, the right one of two that are alike.
func (r *router) route(host int) (*Link, int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.routeLocked(host)
}

func (r *router) routeLocked(host int) (*Link, int) {
	if host < 1 || host > r.opts.Nodes || host == r.host {
		return nil, 0
	}
	if r.opts.Topology == Mesh {
		if l := r.links[linkKey(Direct, host)]; l != nil && l.dev.LinkUp() {
			return l, 1
		}
		return nil, 0
	}
	var best *Link
	hops := 0
	for _, d := range []Direction{Right, Left} {
		n := r.opts.hops(r.host, host, d)
		l := r.links[linkKey(d, 0)]
		if n == 0 || l == nil || !l.dev.LinkUp() || !r.openLocked(host, d) {
			continue
		}
		if best == nil || n < hops {
			best, hops = l, n
		}
	}
	return best, hops
}

// openLocked tells that no link on the way to a host is known to be cut, this
// node's own aside.
func (r *router) openLocked(host int, d Direction) bool {
	for h := r.opts.neighbour(r.host, d); h != host; {
		next := r.opts.neighbour(h, d)
		if r.news[h].side(d) == stateDown || r.news[next].side(d.opposite()) == stateDown {
			return false
		}
		h = next
	}
	return true
}

// changed follows a change of what is known of hosts: others are told, but for
// the link that it came over, and tunnels find their ways again. The caller has
// no tunnel's lock.
func (r *router) changed(from *Link, hosts ...int) {
	r.mu.Lock()
	links := make([]*Link, 0, len(r.links))
	for _, l := range r.links {
		links = append(links, l)
	}
	r.mu.Unlock()
	if r.opts.Topology != Mesh {
		for _, l := range links {
			if l != from {
				l.news.add(hosts...)
			}
		}
	}
	for _, t := range r.tunnels.all() {
		t.reroute()
	}
}

// grace is how long a node may be unreachable before its tunnels go down: news
// of one link that is mended and one that is cut may come in either order.
const grace = time.Second
