package fabric

import (
	"errors"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/ring"
)

// NodeView is what one node knows of its fabric.
type NodeView struct {
	Node     int        `json:"node"`    // number of the node
	Process  int        `json:"process"` // number of the process on the node that owns the links
	PID      int        `json:"pid"`     // process id of that process
	Topology string     `json:"topology"`
	Nodes    int        `json:"nodes"`
	Lanes    int        `json:"lanes"`
	Uptime   float64    `json:"uptime_s"`
	CPU      float64    `json:"cpu_s,omitempty"` // processor time of that process since it started; 0 if not known
	Links    []LinkView `json:"links"`
	// Members are the processes of the node that are reached through this one.
	Members []MemberView `json:"members"`
	// Routes are the routes to the other nodes.
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
	Epoch     uint32  `json:"epoch"`           // of this side, while the link is up
	// Bytes sent over it in frames since it came up, of this node and of others.
	OwnBytes       uint64 `json:"own_bytes"`
	ForwardedBytes uint64 `json:"forwarded_bytes"`
}

// MemberView is the link of a process to the owner of its node's links.
type MemberView struct {
	Process int     `json:"process"` // its number on the node
	PID     int     `json:"pid"`
	State   string  `json:"state"`   // "up" or "down"
	Since   float64 `json:"since_s"` // how long ago the link was made
	Epoch   uint32  `json:"epoch"`   // of the owner's side
	// Bytes sent to it and taken from it in frames.
	ToBytes   uint64 `json:"to_bytes"`
	FromBytes uint64 `json:"from_bytes"`
}

// RouteView is a node's route to another node.
type RouteView struct {
	To        int    `json:"to"`
	State     string `json:"state"` // "up" or "unreachable"
	Direction string `json:"direction,omitempty"`
	Hops      int    `json:"hops,omitempty"`
}

// view returns what this node knows.
func (h *hosts) view() *NodeView {
	g := h.greeting("")
	below := h.snapshot()
	v := &NodeView{
		Node: g.Node, Process: g.Process, PID: g.PID, Topology: g.Topology, Nodes: g.Nodes, Lanes: g.Lanes,
		Uptime: time.Since(h.begun).Seconds(), CPU: cpuTime(), Members: []MemberView{}, Ring: &below,
	}
	for _, r := range below.Routes {
		v.Routes = append(v.Routes, RouteView{To: r.Host, State: r.State, Direction: r.Direction, Hops: r.Hops})
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	v.Refused = h.refused.view()
	for _, l := range h.links {
		lv := LinkView{
			Wire: l.wire.number, To: l.to, Direction: l.direction(h.spec).String(),
			State: l.state(), Ups: l.ups, Since: time.Since(l.since).Seconds(),
		}
		switch missing := l.by.missing(); {
		case lv.State == linkUp:
		case missing != nil:
			lv.Error = missing.Error()
		case l.err != nil:
			lv.Error = l.err.Error()
		}
		for _, info := range below.Links {
			if lv.State == linkUp && info.Direction == lv.Direction && info.Neighbour.Host() == l.to {
				lv.Epoch, lv.OwnBytes, lv.ForwardedBytes = info.Epoch, info.OwnBytes, info.ForwardedBytes
			}
		}
		v.Links = append(v.Links, lv)
	}
	for _, info := range below.Links {
		m := h.members[info.Neighbour.Process()]
		if info.Direction != ring.Down.String() || m == nil {
			continue
		}
		v.Members = append(v.Members, MemberView{
			Process: info.Neighbour.Process(), PID: m.pid, State: info.State, Since: time.Since(m.since).Seconds(),
			Epoch: info.Epoch, ToBytes: info.OwnBytes + info.ForwardedBytes, FromBytes: info.ReceivedBytes,
		})
	}
	return v
}

// isAbsent reports whether an error means that a node does not run.
func isAbsent(err error) bool {
	return errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ECONNREFUSED)
}
