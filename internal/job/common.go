package job

import (
	"errors"
	"fmt"

	"github.com/ntbnet/ntbnet/internal/symheap"
)

// fit has the heap fit into n bytes of memory, in which each of some PEs needs objects bytes for itself. A size that was not
// given is that with which all of them find room.
func (o *options) fit(n, objects, pes int, anyHeap bool) error {
	most := n/pes&^(symheap.PageBytes-1) - objects
	switch {
	case most < 1:
		return fmt.Errorf("option heap=%d of the fabric: want at least heap=%d for %d PEs on each node, which use as much themselves",
			n, pes*(objects+symheap.PageBytes), pes)
	case anyHeap:
		o.Heap = most
	case o.Heap > n-objects:
		return fmt.Errorf("symmetric heap of %d bytes: with heap=%d of the fabric there is room for %d bytes, or %d for %d PEs on each node",
			o.Heap, n, n-objects, most, pes)
	}
	return nil
}

// mapCommon maps the heap of a PE in the memory that all nodes have in common.
func (w *World) mapCommon(h *hello) (*symheap.Memory, error) {
	if h.Node < 1 || h.Node > w.spec.Nodes {
		return nil, fmt.Errorf("of node %d of %d", h.Node, w.spec.Nodes)
	}
	off, n := w.opts.common.Part(h.Node)
	if h.At < off || h.At > off+int64(n-w.heap.Size) || h.At%symheap.PageBytes != 0 {
		return nil, fmt.Errorf("at %d, which is not in the memory for heaps of node %d", h.At, h.Node)
	}
	return symheap.MapIn(w.opts.common.File, h.At, w.heap.Size, h.Token)
}

// closeCommon closes the memory, if there is any, and returns an error.
func (o *options) closeCommon(err error) error {
	if o.common == nil {
		return err
	}
	return errors.Join(err, o.common.Close())
}
