package spec

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ntbnet/ntbnet/ring"
)

// LinkOptions returns the options for the links' layer.
func (s *Spec) LinkOptions() ring.Options {
	o := s.Links.Options
	o.Topology = map[string]ring.Topology{TopologyRing: ring.Ring, TopologyLine: ring.Line, TopologyMesh: ring.Mesh}[s.Kind]
	o.Hosts, o.NoSpin = s.Nodes, s.Spin == 0
	o.Window = min(s.Window, maxTunnel) // 0 is the default of each
	return o
}

// maxTunnel is the largest window of a node that is not a neighbour, in bytes.
const maxTunnel = 1 << 30

var errPuts = errors.New("option puts=window: want two nodes with one wire, a line or a mesh, without failover")

// leastWindow returns how large each side's window of a link is at least.
func (s *Spec) leastWindow() int {
	o, least := s.LinkOptions(), 8
	if s.Nodes == 2 {
		least = 4
	}
	o.Slots = min(cmp.Or(o.Slots, least), least)
	return o.LinkWindow(0)
}

// HeapBytes returns how much of windows, of which the smaller one has n bytes, is for heaps. It returns an error if option
// heap leaves no room for the link.
func (s *Spec) HeapBytes(n int) (int, error) {
	if s.Heap == 0 {
		return n / 2 &^ 4095, nil
	}
	if most := (n - s.leastWindow()) &^ 4095; s.Heap > most {
		return 0, fmt.Errorf("%w: option heap=%d: windows of %d bytes have room for at most heap=%d beside the link",
			ring.ErrUnfit, s.Heap, n, max(0, most))
	}
	return s.Heap, nil
}

var errHeaps = errors.New("option heap: want all ends of one memory, file:/PATH or ivshmem:/PATH, for all nodes: " +
	"two nodes with one wire, or ends with ,peers=N")

// checkHeaps checks that each of this node's wires is an end of the same memory, and that this is one for all nodes.
func (a *Ends) checkHeaps(nodes, wires int) error {
	ends := slices.Collect(maps.Values(a.ends))
	other := func(e end) bool { return e != ends[0] || !IsPath(e.target) }
	if wires == 0 || len(ends) != wires || slices.ContainsFunc(ends, other) || ends[0].places == 2 && (nodes != 2 || wires != 1) {
		return errHeaps
	}
	return nil
}
