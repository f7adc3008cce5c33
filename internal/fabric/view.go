package fabric

import (
	"errors"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/ring"
)

// NodeView is what one node knows of its fabric.
type NodeView struct {
	Node     int        `json:"node"` // its number
	PID      int        `json:"pid"`  // its process
	Topology string     `json:"topology"`
	Nodes    int        `json:"nodes"`
	Lanes    int        `json:"lanes"`
	Uptime   float64    `json:"uptime_s"`
	Links    []LinkView `json:"links"`
	// Routes are the ways to the other nodes.
	Routes  []RouteView `json:"routes"`
	Refused Refusals    `json:"refused"`
	// Ring is what the links' own layer knows.
	Ring *ring.Snapshot `json:"ring,omitempty"`
}

// LinkView is a node's end of one link.
type LinkView struct {
	Wire      int     `json:"wire"` // number, the same at both ends
	To        int     `json:"to"`   // the neighbour
	Direction string  `json:"direction"`
	State     string  `json:"state"`           // "up", "making", "absent" or "down"
	Error     string  `json:"error,omitempty"` // why it is not up
	Ups       int     `json:"ups"`             // how often it came up
	Since     float64 `json:"since_s"`         // how long the state has lasted
	Epoch     uint32  `json:"epoch"`           // of this side, while it is up
	// Bytes sent over it in frames since it came up, of this node and of others.
	OwnBytes       uint64 `json:"own_bytes"`
	ForwardedBytes uint64 `json:"forwarded_bytes"`
}

// RouteView is a node's way to another.
type RouteView struct {
	To        int    `json:"to"`
	State     string `json:"state"` // "up" or "unreachable"
	Direction string `json:"direction,omitempty"`
	Hops      int    `json:"hops,omitempty"`
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
	up := map[int]LinkView{}
	for _, l := range h.links {
		lv := LinkView{
			Wire: l.wire.number, To: l.to, Direction: l.direction(h.spec).String(),
			State: l.state(), Ups: l.ups, Since: time.Since(l.since).Seconds(),
		}
		if l.err != nil && lv.State != linkUp {
			lv.Error = l.err.Error()
		}
		if lv.State == linkUp {
			up[l.to] = lv
		}
		v.Links = append(v.Links, lv)
	}
	for node := 1; node <= h.spec.Nodes; node++ {
		if node == h.spec.Node {
			continue
		}
		r := RouteView{To: node, State: "unreachable"}
		if l, ok := up[node]; ok {
			r = RouteView{To: node, State: linkUp, Direction: l.Direction, Hops: 1}
		}
		v.Routes = append(v.Routes, r)
	}
	return v
}

// isAbsent tells that a node does not run.
func isAbsent(err error) bool {
	return errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ECONNREFUSED)
}
