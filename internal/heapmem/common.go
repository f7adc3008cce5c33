package heapmem

import (
	"context"
	"os"

	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb/ntbivshmem"
)

// Common is the memory that all nodes of a fabric have in common. Option heap leaves a part of it for each node to
// symmetric heaps. All processes of all nodes can write all parts.
type Common struct {
	*os.File     // a descriptor of its own, with locks of its own
	Node     int // this process' node

	place ntbivshmem.Place
	size  int64 // of the memory
}

// OpenCommon opens the memory of option heap, which has room for it. It returns nil without that option, or if that says
// how much of windows is for heaps. The caller closes it.
func OpenCommon(ctx context.Context, s *spec.Spec) (*Common, error) {
	if s.Heap == 0 || s.Puts {
		return nil, nil
	}
	f, size, place, err := s.OpenMemory(ctx)
	if err != nil {
		return nil, err
	}
	return &Common{File: f, Node: s.Node, place: place, size: size}, nil
}

// Part returns where the heaps of a node lie in the memory.
func (h *Common) Part(node int) (off int64, n int) {
	off, _ = h.place.HeapAt(h.size, node-1)
	return off, h.place.Heap
}
