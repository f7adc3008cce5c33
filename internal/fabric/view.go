package fabric

import "time"

// NodeView is what one node knows of its fabric.
type NodeView struct {
	Node     int        `json:"node"` // its number
	PID      int        `json:"pid"`  // its process
	Topology string     `json:"topology"`
	Nodes    int        `json:"nodes"`
	Lanes    int        `json:"lanes"`
	Uptime   float64    `json:"uptime_s"`
	Links    []LinkView `json:"links"`
	Refused  Refusals   `json:"refused"`
}

// LinkView is a node's end of one link.
type LinkView struct {
	Wire  int     `json:"wire"`  // number, the same at both ends
	To    int     `json:"to"`    // the neighbour
	State string  `json:"state"` // "up", "making", "absent" or "down"
	Ups   int     `json:"ups"`   // how often it came up
	Since float64 `json:"since_s"`
	Error string  `json:"error,omitempty"`
}

// view is what this node knows.
func (h *hosts) view() *NodeView {
	g := h.greeting("")
	v := &NodeView{
		Node: g.Node, PID: g.PID, Topology: g.Topology, Nodes: g.Nodes, Lanes: g.Lanes,
		Uptime: time.Since(h.begun).Seconds(),
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	v.Refused = h.refused
	for _, l := range h.links {
		lv := LinkView{Wire: l.wire.number, To: l.to, State: l.state(), Ups: l.ups, Since: time.Since(l.since).Seconds()}
		if l.err != nil && lv.State != linkUp {
			lv.Error = l.err.Error()
		}
		v.Links = append(v.Links, lv)
	}
	return v
}
