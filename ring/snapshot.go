package ring

import (
	"maps"
	"slices"
	"sort"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/link"
)

// Snapshot is what a node knows of the fabric. Its JSON form is what
// ntbnet topology prints.
type Snapshot struct {
	// Self is the node that made the snapshot, as a number and as ID.String returns
	// it.
	Self     link.ID `json:"self"`
	Name     string  `json:"name"`
	Topology string  `json:"topology"` // "ring", "line", "mesh"
	Nodes    int     `json:"nodes"`
	Lanes    int     `json:"lanes"`
	// Hosts are all hosts, 1 to Nodes.
	Hosts []HostInfo `json:"hosts"`
	// Links are this node's own links.
	Links []LinkInfo `json:"links"`
	// Routes are those to the other hosts, in the order of their numbers.
	Routes []RouteInfo `json:"routes"`
	// Tunnels are the routed peers.
	Tunnels []TunnelInfo `json:"tunnels"`
	// Drops counts frames dropped here, by reason. Reasons that did not occur are
	// left out.
	Drops map[string]uint64 `json:"drops"`
}

// HostInfo is a host as its link state describes it.
type HostInfo struct {
	Host  int     `json:"host"`
	ID    link.ID `json:"id"`    // node that has its links; 0 if no link state came
	State string  `json:"state"` // "self", "up", "unreachable", "unknown"
	// Left and Right are the states of its links: "up", "down", "none" (the end
	// of a line), "unknown". They are empty in a mesh.
	Left  string `json:"left,omitempty"`
	Right string `json:"right,omitempty"`
	// Members are its nodes that are reached through that one.
	Members []link.ID `json:"members,omitempty"`
	// Epoch is the number of its latest link state.
	Epoch uint64 `json:"epoch"`
}

// LinkInfo is a link of this node. Frames and bytes are counted since the link
// came up; bytes include the frames' headers.
type LinkInfo struct {
	Direction       string  `json:"direction"` // "left", "right", "direct", "up", "down"
	Neighbour       link.ID `json:"neighbour"`
	Name            string  `json:"name"`
	State           string  `json:"state"`            // "up", "down"
	Epoch           uint32  `json:"epoch"`            // of this side, chosen at bring-up
	NeighbourEpoch  uint32  `json:"neighbour_epoch"`  // of the other side
	OwnFrames       uint64  `json:"own_frames"`       // sent, of this node
	OwnBytes        uint64  `json:"own_bytes"`        //
	ForwardedFrames uint64  `json:"forwarded_frames"` // sent, of other nodes
	ForwardedBytes  uint64  `json:"forwarded_bytes"`  //
	ReceivedFrames  uint64  `json:"received_frames"`  // taken from the neighbour, for any destination
	ReceivedBytes   uint64  `json:"received_bytes"`   //
	Doorbells       uint64  `json:"doorbells"`        // rung for lanes
	Wakes           uint64  `json:"wakes"`            // of this side's goroutines for lanes, by the neighbour's doorbells
	Rests           uint64  `json:"rests"`            // of these while other goroutines polled
	Offers          uint64  `json:"offers"`           // of the processor to other processes, or goroutines of this one, by these
}

// RouteInfo is the route to a host.
type RouteInfo struct {
	Host      int    `json:"host"`
	State     string `json:"state"`               // "up", "unreachable"
	Direction string `json:"direction,omitempty"` // in use
	Hops      int    `json:"hops"`                // in that direction
	// Side is where frames go from this host: Direction, or where the owner sends those of a member.
	Side Direction `json:"-"`
}

// TunnelInfo is a routed peer.
type TunnelInfo struct {
	Peer        link.ID `json:"peer"`
	Name        string  `json:"name"`
	State       string  `json:"state"` // "opening", "up", "down", "closed"
	Direction   string  `json:"direction,omitempty"`
	Lane        int     `json:"lane"`
	Epoch       uint32  `json:"epoch"`
	Path        uint32  `json:"path"` // how often frames were sent again from the first that was not acknowledged
	Sent        uint64  `json:"sent"` // frames, without repetitions
	SentBytes   uint64  `json:"sent_bytes"`
	Resent      uint64  `json:"resent"`
	Received    uint64  `json:"received"` // in order, once each
	Unconfirmed int     `json:"unconfirmed_bytes"`
}

// Topology returns a snapshot of the fabric as this node sees it.
func (n *Node) Topology() Snapshot {
	r := n.router
	o := r.opts
	s := Snapshot{
		Self: n.id, Name: n.id.String(), Topology: o.Topology.String(), Nodes: o.Hosts, Lanes: o.Lanes,
		Links: []LinkInfo{}, Tunnels: []TunnelInfo{}, Drops: map[string]uint64{},
	}
	s.Hosts, s.Routes = n.Hosts()
	r.mu.Lock()
	links := slices.Collect(maps.Values(r.links))
	r.mu.Unlock() // in the order of locks it comes after those of the lanes
	for _, l := range links {
		s.Links = append(s.Links, l.info())
	}
	for _, t := range r.tunnels.all() {
		s.Tunnels = append(s.Tunnels, t.info())
	}
	sort.Slice(s.Links, func(i, j int) bool { return s.Links[i].Neighbour < s.Links[j].Neighbour })
	for why := range r.drops {
		if v := r.drops[why].Load(); v > 0 {
			s.Drops[dropNames[why]] = v
		}
	}
	return s
}

// Hosts returns what this node knows of all hosts, 1 to Options.Hosts, and its routes to the others. It changes
// when [Node.Changed] says so, and takes no lock that is held while frames are stored.
func (n *Node) Hosts() (hosts []HostInfo, routes []RouteInfo) {
	r := n.router
	routes = []RouteInfo{}
	r.mu.Lock()
	defer r.mu.Unlock()
	for host := 1; host <= r.opts.Hosts; host++ {
		h := HostInfo{Host: host, State: "unknown"}
		if n := r.linkStates[host]; n != nil {
			h.ID, h.Epoch, h.Members = n.id, n.number, n.members
		}
		if r.opts.Topology != Mesh {
			h.Left, h.Right = r.linkStates[host].side(Left).String(), r.linkStates[host].side(Right).String()
		}
		link, side, hops := r.routeLocked(host)
		switch {
		case host == r.host:
			h.State = "self"
		case link == nil:
			h.State = "unreachable"
			routes = append(routes, RouteInfo{Host: host, State: "unreachable"})
		default:
			if r.linkStates[host] != nil || r.opts.Topology == Mesh {
				h.State = "up"
			}
			routes = append(routes, RouteInfo{Host: host, State: "up", Direction: link.direction.String(), Hops: hops, Side: side})
		}
		if r.opts.Topology == Mesh && link != nil && link.direction == Direct {
			h.ID = link.id
		}
		hosts = append(hosts, h)
	}
	return hosts, routes
}

func (l *Link) info() LinkInfo {
	i := LinkInfo{
		Direction: l.direction.String(), Neighbour: l.id, Name: l.id.String(), State: "up",
		Epoch: l.epoch, NeighbourEpoch: l.farEpoch,
	}
	if !l.dev.LinkUp() {
		i.State = "down"
	}
	for _, o := range l.out {
		o.mu.Lock()
		i.OwnFrames += o.stats.ownFrames
		i.OwnBytes += o.stats.ownBytes
		i.ForwardedFrames += o.stats.fwdFrames
		i.ForwardedBytes += o.stats.fwdBytes
		i.Doorbells += o.stats.doorbells
		o.mu.Unlock()
	}
	for _, in := range l.in {
		in.mu.Lock()
		i.ReceivedFrames += in.frames
		i.ReceivedBytes += in.bytes
		in.mu.Unlock()
		i.Wakes += in.wakes.Load()
		i.Rests += in.rests.Load()
		i.Offers += in.offers.Load()
	}
	return i
}

func (t *tunnel) info() TunnelInfo {
	t.inbound.mu.Lock()
	taken := t.inbound.taken
	t.inbound.mu.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	sent := t.arq.Stats()
	i := TunnelInfo{
		Peer: t.remote, Name: t.remote.String(), State: deviceState(t.current()), Lane: t.laneIndex(), Epoch: t.epoch,
		Path: sent.Restarts, Sent: sent.Sent, SentBytes: sent.SentBytes, Resent: sent.Resent,
		Received: taken, Unconfirmed: t.arq.KeptBytes(),
	}
	if t.nextHop.link != nil {
		i.Direction = t.nextHop.link.direction.String()
	}
	return i
}

// deviceState returns the state of a tunnel as those see it who have its device.
func deviceState(s arq.State) string {
	switch {
	case s == arq.Opening:
		return "opening"
	case s == arq.Up:
		return "up"
	case s == arq.Lingering || s == arq.Closed:
		return "closed"
	}
	return "down"
}
