package fabric

import (
	"iter"
	"strconv"
	"strings"
)

// Topologies.
const (
	topologyRing = "ring" // each node with the two next to it
	topologyLine = "line" // a ring without the link from the last to the first
	topologyMesh = "mesh" // each node with each, as behind a switch
)

func isTopology(kind string) bool {
	return kind == topologyRing || kind == topologyLine || kind == topologyMesh
}

// wire is one cable of the plan. Its number distinguishes the two wires of a ring
// of two nodes.
type wire struct {
	number int // 1 to the number of wires, the same on every node
	a, b   int // the nodes that it joins; in a ring, b comes next after a
}

// other returns the node at the other end, or 0 if node is at neither end.
func (w wire) other(node int) int {
	switch node {
	case w.a:
		return w.b
	case w.b:
		return w.a
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

// from returns the wire as node sees it, which is at one of its ends.
func (w wire) from(topology string, node int) Wire {
	side := Left
	switch {
	case topology == topologyMesh:
		side = Direct
	case w.a == node:
		side = Right
	}
	return Wire{Number: w.number, Node: node, Neighbour: w.other(node), Side: side}
}

// wires yields the plan: every cable of a fabric.
func wires(topology string, nodes int) iter.Seq[wire] {
	return func(yield func(wire) bool) {
		number := 0
		for a := 1; a <= nodes; a++ {
			first, last := a+1, a+1
			switch {
			case topology == topologyMesh:
				last = nodes
			case a == nodes && topology == topologyRing:
				first, last = 1, 1
			case a == nodes:
				continue
			}
			for b := first; b <= last; b++ {
				number++
				if !yield(wire{number, a, b}) {
					return
				}
			}
		}
	}
}

// nodeName returns the name of a node in addresses.
func nodeName(node int) string { return "node" + strconv.Itoa(node) }

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
func (s *Spec) Hops(node int) int {
	d := max(node, s.Node) - min(node, s.Node)
	switch {
	case d == 0 || !s.hosts():
		return 0
	case s.Kind == topologyMesh:
		return 1
	case s.Kind == topologyRing:
		return min(d, s.Nodes-d)
	}
	return d
}
