package fabric

import (
	"slices"
	"time"

	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
)

// joining is how long the links of a process that has joined may take to come up.
const joining = time.Second

// Reaches reports whether there is a route to a node, or may be one soon, since this process has just joined.
func (f *Fabric) Reaches(node int) bool {
	if time.Since(f.begun) < joining {
		return true
	}
	nodes, _ := f.Nodes()
	return slices.ContainsFunc(nodes, func(n NodeInfo) bool { return n.Node == node && n.Up })
}

// NodeInfo is what this process knows of a node.
type NodeInfo struct {
	Node  int
	Names []string  // and addresses, besides its own name
	Up    bool      // there is a route to it, or it is this node
	Hops  int       // links on the route; 0 for this node, and without a route
	Via   spec.Side // the first of these; "" without a route
	// Left and Right are the states of its links, as the node says: "up", "down", "none" at the end of a line, or
	// "unknown". They are empty in a mesh, and where there is one node.
	Left, Right string
}

// Nodes returns what this process knows of the nodes, in the order of their numbers. changed is closed when that may
// have changed; it is nil if that never does. A member knows its own node alone until it has met an owner of the links.
func (f *Fabric) Nodes() (nodes []NodeInfo, changed <-chan struct{}) {
	self := NodeInfo{Node: f.spec.Node, Names: f.spec.Names.Of(f.spec.Node), Up: true}
	if !f.several() {
		return []NodeInfo{self}, nil
	}
	f.mu.Lock()
	changed = f.changed
	f.mu.Unlock()
	r := f.ring.Load()
	if r == nil {
		return []NodeInfo{self}, changed
	}
	changed = r.Changed()
	for _, host := range r.Hosts() {
		n := NodeInfo{Node: host.Host, Names: f.spec.Names.Of(host.Host), Left: host.Left, Right: host.Right}
		switch host.State {
		case "self":
			n.Up = true
		case "up":
			n.Up, n.Hops, n.Via = true, host.Hops, spec.Side(host.Side) // which has ring's words
		default: // what it has said may be long ago
			if n.Left != "" {
				n.Left, n.Right = status.Unknown, status.Unknown
			}
		}
		nodes = append(nodes, n)
	}
	return nodes, changed
}
