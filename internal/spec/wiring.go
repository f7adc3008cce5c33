package spec

import (
	"iter"
	"strconv"
	"strings"
)

// Topologies.
const (
	TopologyRing = "ring" // each node with the two next to it
	TopologyLine = "line" // a ring without the link from the last to the first
	TopologyMesh = "mesh" // each node with each, as behind a switch
)

func IsTopology(kind string) bool {
	return kind == TopologyRing || kind == TopologyLine || kind == TopologyMesh
}

// Limits of a fabric of several hosts.
const (
	MinNodes = 2
	MaxNodes = 16 // the largest number of a node
	maxLanes = 8
)

// Topology has the nodes of a fabric: how they are linked, which this process is of, and what they are called.
type Topology struct {
	Kind  string // TopologyRing, TopologyLine or TopologyMesh, or of one host shm or mem
	Node  int    // 1 to Nodes; 0 where there is one host
	Nodes int    // 2 to MaxNodes; 0 for members, which need not know, and where there is one host
	Names Names  // of nodes, besides their own
}

// Several reports whether the fabric has several hosts.
func (t Topology) Several() bool { return IsTopology(t.Kind) }

// IsMember reports whether the process is one that owns no links of its host.
func (t Topology) IsMember() bool { return t.Several() && t.Nodes == 0 }

// IsOwner reports whether the process owns links to other hosts.
func (t Topology) IsOwner() bool { return t.Several() && t.Nodes != 0 }

// Chain reports whether each node is linked with the next one only, by its number, and
// whether the last one is then linked with the first.
func (t Topology) Chain() (chained, closed bool) {
	return t.Kind == TopologyRing || t.Kind == TopologyLine, t.Kind == TopologyRing
}

// Edge is a wire in the plan. Its number distinguishes the two wires of a ring
// of two nodes.
type Edge struct {
	Number int // 1 to the number of wires, the same on every node
	A, B   int // the nodes that it joins; in a ring, b comes next after a
}

// Other returns the node at the other end, or 0 if node is at neither end.
func (w Edge) Other(node int) int {
	switch node {
	case w.A:
		return w.B
	case w.B:
		return w.A
	}
	return 0
}

// Wire is a wire as this node's end of it sees it.
type Wire struct {
	Number    int // in the plan of the fabric, the same on every node, from 1 on
	Node      int // this node
	Neighbour int // the node at the other end
	Side      Side
}

// Side is the side of a node on which a wire is.
type Side string

const (
	Left   Side = "left"   // towards the node whose number is one less
	Right  Side = "right"  // towards the node whose number is one more
	Direct Side = "direct" // in a mesh, which has no sides
)

// From returns the wire as node sees it, which is at one of its ends.
func (w Edge) From(topology string, node int) Wire {
	side := Left
	switch {
	case topology == TopologyMesh:
		side = Direct
	case w.A == node:
		side = Right
	}
	return Wire{Number: w.Number, Node: node, Neighbour: w.Other(node), Side: side}
}

// Plan yields every wire of a fabric.
func Plan(topology string, nodes int) iter.Seq[Edge] {
	return func(yield func(Edge) bool) {
		number := 0
		for a := 1; a <= nodes; a++ {
			first, last := a+1, a+1
			switch {
			case topology == TopologyMesh:
				last = nodes
			case a == nodes && topology == TopologyRing:
				first, last = 1, 1
			case a == nodes:
				continue
			}
			for b := first; b <= last; b++ {
				number++
				if !yield(Edge{number, a, b}) {
					return
				}
			}
		}
	}
}

// Wires yields the wires of this process' node, as it sees them.
func (t Topology) Wires() iter.Seq[Wire] {
	return func(yield func(Wire) bool) {
		for w := range Plan(t.Kind, t.Nodes) {
			if w.Other(t.Node) != 0 && !yield(w.From(t.Kind, t.Node)) {
				return
			}
		}
	}
}

// NodeName returns the name of a node in addresses.
func NodeName(node int) string { return "node" + strconv.Itoa(node) }

// parseNode parses a node's name or number: "node3" or "3".
func parseNode(name string) (node int, ok bool) {
	digits := strings.TrimPrefix(name, "node")
	if digits == "" || len(digits) > 5 || digits[0] == '0' || strings.Trim(digits, "0123456789") != "" {
		return 0, false
	}
	node, err := strconv.Atoi(digits)
	return node, err == nil
}

// Hops returns how many links lie between this process' node and another by the
// shortest way in the fabric's plan. It returns 0 for the same node, and in a
// fabric of one host.
func (t Topology) Hops(node int) int {
	d := max(node, t.Node) - min(node, t.Node)
	switch {
	case d == 0 || !t.Several():
		return 0
	case t.Kind == TopologyMesh:
		return 1
	case t.Kind == TopologyRing:
		return min(d, t.Nodes-d)
	}
	return d
}
