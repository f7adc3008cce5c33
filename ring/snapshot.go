package ring

// Snapshot is what a node knows of the fabric. Its JSON form is what
// sdp-perf topology prints.
type Snapshot struct {
	// Self is the node that made it, as a number and as ID.String gives it.
	Self     ID     `json:"self"`
	Name     string `json:"name"`
	Topology string `json:"topology"` // "ring", "line", "mesh"
	Nodes    int    `json:"nodes"`
	Lanes    int    `json:"lanes"`
	// Hosts are all hosts, 1 to Nodes.
	Hosts []HostInfo `json:"hosts"`
	// Links are this node's own links.
	Links []LinkInfo `json:"links"`
	// Routes are the ways to the other hosts, in the order of their numbers.
	Routes []RouteInfo `json:"routes"`
	// Tunnels are the routed peers.
	Tunnels []TunnelInfo `json:"tunnels"`
	// Drops counts frames dropped here, by reason. Reasons that did not happen
	// are left out.
	Drops map[string]uint64 `json:"drops"`
}

// HostInfo is a host as its news say.
type HostInfo struct {
	Host  int    `json:"host"`
	ID    ID     `json:"id"`    // of its node; 0: nothing was heard of it
	State string `json:"state"` // "self", "up", "unreachable", "unknown"
	// Left and Right are the states of its links: "up", "down", "none" (the end
	// of a line), "unknown". They are empty in a mesh.
	Left  string `json:"left,omitempty"`
	Right string `json:"right,omitempty"`
	// Epoch is the number of its latest news; greater is newer.
	Epoch uint64 `json:"epoch"`
}

// LinkInfo is a link of this node. Frames and bytes are counted since the link
// came up; bytes include the frames' headers.
type LinkInfo struct {
	Direction       string `json:"direction"` // "left", "right", "direct"
	Neighbour       ID     `json:"neighbour"`
	Name            string `json:"name"`
	State           string `json:"state"`            // "up", "down"
	Epoch           uint32 `json:"epoch"`            // of this side, chosen at bring-up
	NeighbourEpoch  uint32 `json:"neighbour_epoch"`  // of the other side
	OwnFrames       uint64 `json:"own_frames"`       // sent, of this node
	OwnBytes        uint64 `json:"own_bytes"`        //
	ForwardedFrames uint64 `json:"forwarded_frames"` // sent, of other nodes
	ForwardedBytes  uint64 `json:"forwarded_bytes"`  //
	ReceivedFrames  uint64 `json:"received_frames"`  // taken from the neighbour, for whomever
	ReceivedBytes   uint64 `json:"received_bytes"`   //
	Doorbells       uint64 `json:"doorbells"`        // rung for lanes
}

// RouteInfo is the way to a host.
type RouteInfo struct {
	Host      int    `json:"host"`
	State     string `json:"state"`               // "up", "unreachable"
	Direction string `json:"direction,omitempty"` // in use
	Hops      int    `json:"hops"`                // in that direction
}

// TunnelInfo is a routed peer.
type TunnelInfo struct {
	Peer        ID     `json:"peer"`
	Name        string `json:"name"`
	State       string `json:"state"` // "opening", "up", "down", "closed"
	Direction   string `json:"direction,omitempty"`
	Lane        int    `json:"lane"`
	Epoch       uint32 `json:"epoch"`
	Path        uint32 `json:"path"` // how often frames were sent again from the first that was not acknowledged
	Sent        uint64 `json:"sent"` // frames, first times only
	SentBytes   uint64 `json:"sent_bytes"`
	Resent      uint64 `json:"resent"`
	Received    uint64 `json:"received"` // in order, once each
	Unconfirmed int    `json:"unconfirmed_bytes"`
}
