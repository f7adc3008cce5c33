package fabric

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ntbnet/ntbnet/ntb/ntbivshmem"
)

// Heaps is the memory that all nodes of a fabric have in common. Option heap leaves a part of it for each node to
// symmetric heaps. All processes of all nodes can write all parts.
type Heaps struct {
	*os.File     // a descriptor of its own, with locks of its own
	Node     int // this process' node

	place ntbivshmem.Place
	size  int64 // of the memory
}

var errHeaps = errors.New("option heap: want all ends of one memory, file:/PATH or ivshmem:/PATH, for all nodes: " +
	"two nodes with one wire, or ends with ,peers=N")

// checkHeaps checks that each of this node's wires is an end of the same memory, and that this is one for all nodes.
// The ends then leave out what is for heaps.
func (s *Spec) checkHeaps(wires int) error {
	var all end
	for name, e := range s.ends {
		e.heap, e.least = s.Heap, s.leastWindow()
		if all.kind != "" && e != all || !isPath(e.target) {
			return errHeaps
		}
		all, s.ends[name] = e, e
	}
	if all.kind == "" || len(s.ends) != wires || all.places == 2 && (s.Nodes != 2 || wires != 1) {
		return errHeaps
	}
	return nil
}

// OpenHeaps opens the memory of option heap, which has room for it. It returns nil without that option, or if that says
// how much of windows is for heaps. The caller closes it.
func (s *Spec) OpenHeaps(ctx context.Context) (*Heaps, error) {
	if s.Heap == 0 || s.Puts {
		return nil, nil
	}
	var e end
	for _, e = range s.ends { // all are the same
	}
	f, size, err := ntbivshmem.OpenMemory(ctx, e.target, e.kind != "file")
	if err != nil {
		return nil, err
	}
	h := &Heaps{File: f, Node: s.Node, place: ntbivshmem.Place{Places: e.places, Heap: s.Heap, Least: e.least}, size: size}
	if err := h.place.CheckHeap(size); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", e.target, err), f.Close())
	}
	return h, nil
}

// Part returns where the heaps of a node lie in the memory.
func (h *Heaps) Part(node int) (off int64, n int) {
	off, _ = h.place.HeapAt(h.size, node-1)
	return off, h.place.Heap
}
