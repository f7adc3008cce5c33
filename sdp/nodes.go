package sdp

import (
	"context"
	"iter"
)

// Node is a node of a fabric, as this process knows it.
type Node struct {
	Number int      // from 1 on; 1 where the fabric has one node
	Names  []string // names and addresses that option hostI gives it, in order
	// Up reports that there is a route to the node, or that it is this process' own. A
	// process of the node forwards, but need not listen.
	Up   bool
	Hops int  // links on the route, with that of a member to its owner; 0 for this node, and without a route
	Via  Side // where the route leaves this node; "" without one
	// Left and Right are the links of the node to its neighbours, as it says. They are
	// LinkUnknown without a route, and in a mesh or a fabric of one node.
	Left, Right LinkState
}

// LinkState is the state of a link between two nodes.
type LinkState string

// States of links.
const (
	LinkUnknown LinkState = "unknown"
	LinkUp      LinkState = "up"
	LinkDown    LinkState = "down"
	LinkNone    LinkState = "none" // a line ends here
)

// Event is a change of a node.
type Event struct {
	Type EventType
	Node Node // after the change
}

// EventType is what has changed.
type EventType int

// Types of events.
const (
	NodeUp       EventType = iota + 1 // the node has come within reach
	NodeDown                          // it has gone out of reach
	RouteChanged                      // the route to it is another one, or a link of the node is up or down now
)

// String returns "up", "down" or "route changed".
func (t EventType) String() string {
	switch t {
	case NodeUp:
		return "up"
	case NodeDown:
		return "down"
	case RouteChanged:
		return "route changed"
	}
	return "unknown"
}

// Nodes returns the nodes of the fabric, in the order of their numbers. A member of a node, which
// owns no links, knows its own node alone until it has met their owner.
func (f *Fabric) Nodes() []Node {
	nodes, _ := f.nodes()
	return nodes
}

// nodes is Nodes. changed is closed when they may have changed.
func (f *Fabric) nodes() (nodes []Node, changed <-chan struct{}) {
	all, changed := f.stack.fabric.Nodes()
	for _, n := range all {
		nodes = append(nodes, Node{n.Node, n.Names, n.Up, n.Hops, Side(n.Via), linkState(n.Left), linkState(n.Right)})
	}
	return nodes, changed
}

func linkState(s string) LinkState {
	if s == "" {
		return LinkUnknown
	}
	return LinkState(s)
}

// Watch yields an event for each node that is up, and then for each change of a node, until ctx
// ends or the Fabric is closed. It waits in the caller's goroutine and holds up nobody: of what
// changes between two looks, the reader gets the difference, and not what was undone meanwhile.
//
//	for e := range f.Watch(ctx) {
//		log.Printf("node%d: %v", e.Node.Number, e.Type)
//	}
func (f *Fabric) Watch(ctx context.Context) iter.Seq[Event] {
	return func(yield func(Event) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		w := &watcher{cancel}
		if f.add(w) != nil {
			return
		}
		defer f.remove(w)
		known := map[int]Node{}
		for {
			nodes, changed := f.nodes()
			for _, n := range nodes {
				e := Event{difference(known[n.Number], n), n}
				known[n.Number] = n
				if e.Type != 0 && (ctx.Err() != nil || !yield(e)) {
					return
				}
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

// watcher is a Watch that runs. It is a user of its Fabric, which ends it.
type watcher struct{ cancel context.CancelFunc }

func (w *watcher) Close() error { w.cancel(); return nil }

// difference returns what has changed of a node, 0 if nothing has. The zero Node is one that was not known.
func difference(was, is Node) EventType {
	switch {
	case is.Up != was.Up && is.Up:
		return NodeUp
	case is.Up != was.Up:
		return NodeDown
	case is.Up && (is.Hops != was.Hops || is.Via != was.Via || is.Left != was.Left || is.Right != was.Right):
		return RouteChanged
	}
	return 0
}
