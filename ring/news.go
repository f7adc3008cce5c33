package ring

import (
	"sync"
	"time"
)

// Every node tells all others of its links. A frame of news goes to the
// neighbours, which send on what is newer than what they know.

// sideState is what a node says of one of its links.
type sideState uint8

const (
	stateUnknown sideState = iota
	stateUp
	stateDown
	stateNone // the end of a line
)

func (s sideState) String() string { return [...]string{"unknown", "up", "down", "none"}[s&3] }

// news is what a node says of itself.
type news struct {
	id     ID
	number uint64 // greater is newer; the time in nanoseconds, so that a new process counts on
	sides  [2]sideState
	links  [2]uint32 // of each side: differs when the link was made again; 0: none
}

func (n *news) side(d Direction) sideState {
	if n == nil {
		return stateUnknown
	}
	return n.sides[d]
}

// ownNewsLocked makes new news of this node. The caller holds mu, or has the only
// reference.
func (r *router) ownNewsLocked() {
	own := &news{id: r.node.id, number: uint64(time.Now().UnixNano())}
	if was := r.news[r.host]; was != nil {
		own.number = max(own.number, was.number+1)
	}
	for _, d := range []Direction{Left, Right} {
		switch {
		case r.opts.Topology == Mesh:
		case r.opts.neighbour(r.host, d) == 0:
			own.sides[d] = stateNone
		case r.links[linkKey(d, 0)] != nil:
			own.sides[d] = stateUp
			own.links[d] = r.links[linkKey(d, 0)].epoch
		default:
			own.sides[d] = stateDown
		}
	}
	r.news[r.host] = own
}

// newsFrom takes news from a neighbour.
func (r *router) newsFrom(l *Link, f *frame) {
	host := f.src.Host()
	n := &news{
		id: f.src, number: f.newsNumber(),
		sides: [2]sideState{sideState(f.bells & 3), sideState(f.bells >> 8 & 3)},
		links: [2]uint32{f.arg, f.ask},
	}
	if f.dst != 0 || f.length != 0 || host < 1 || host > r.opts.Nodes || r.opts.Topology == Mesh {
		r.drop(dropNews)
		return
	}
	r.mu.Lock()
	if was := r.news[host]; host == r.host || was != nil && was.number >= n.number {
		r.mu.Unlock()
		return
	}
	r.news[host] = n
	r.mu.Unlock()
	r.changed(l, host)
}

// newsSender sends news over a link. It implements ownSource.
type newsSender struct {
	link *Link

	mu      sync.Mutex
	pending []int // hosts whose news are to be sent, each once; guarded by mu
}

// add sends the latest news of hosts.
func (s *newsSender) add(hosts ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
next:
	for _, h := range hosts {
		for _, p := range s.pending {
			if p == h {
				continue next
			}
		}
		s.pending = append(s.pending, h)
	}
	s.push(false)
}

func (s *newsSender) serve(*outLane) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.push(true)
}

// push sends while there is room. The caller holds mu.
func (s *newsSender) push(served bool) {
	r := s.link.router
	for len(s.pending) > 0 {
		r.mu.Lock()
		n := r.news[s.pending[0]]
		r.mu.Unlock()
		f := frame{
			kind: frameNews, hops: 1, src: n.id, epoch: uint32(n.number), seq: uint32(n.number >> 32),
			bells: uint32(n.sides[Left]) | uint32(n.sides[Right])<<8,
			arg:   n.links[Left], ask: n.links[Right],
		}
		switch s.link.out[0].own(&f, nil, s, served) {
		case putDone:
			s.pending = s.pending[1:]
		case putWait:
			return
		case putDown:
			s.pending = nil
		}
		served = false
	}
}
