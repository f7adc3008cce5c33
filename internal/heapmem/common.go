package heapmem

import (
	"context"
	"errors"
	"fmt"
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

// OpenCommon opens the memory of option heap, which has room for it. It returns nil if the fabric has none. The caller
// closes it.
func OpenCommon(ctx context.Context, s *spec.Spec) (*Common, error) {
	path, server, place, ok := s.CommonMemory()
	if !ok {
		return nil, nil
	}
	f, size, err := ntbivshmem.OpenMemory(ctx, path, server)
	if err != nil {
		return nil, err
	}
	if err := place.CheckHeap(size); err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), f.Close())
	}
	return &Common{File: f, Node: s.Node, place: place, size: size}, nil
}

// Part returns where the heaps of a node lie in the memory.
func (h *Common) Part(node int) (off int64, n int) {
	off, _ = h.place.HeapAt(h.size, node-1)
	return off, h.place.Heap
}
