package job

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/ntbnet/ntbnet/internal/collective"
	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/heapmem"
	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Where a heap lies decides how it is reached:
//
//	memory of Go                            mapped by the PEs of this process
//	the memory in common, by option heap    mapped by all PEs
//	a file of its own, which is lent        mapped by PEs of its user, one hop away at most
//	parts of it in a window, option puts    the PE that owns the neighbour's links puts there by stores
//
// All other PEs and operations use requests. newHeap and offer decide where this PE's heap lies, and mapPeer finds where that
// of another one does.

// fit has the heap fit into what option heap leaves to the heaps of a node. A size that was not given is that with which all
// its PEs find room.
func (o *options) fit(s *spec.Spec, anyHeap bool) error {
	objects, pes := objectsAt(o.N), (o.N+s.Nodes-1)/s.Nodes // each node has as many as another one, or one less
	if s.Puts {
		objects, pes = windowHead(o.N)-o.Static, 1
	}
	most := s.Heap/pes&^(symheap.PageBytes-1) - objects
	switch {
	case most < 1:
		return fmt.Errorf("option heap=%d of the fabric: want at least heap=%d for %d PEs on each node, which use as much themselves",
			s.Heap, pes*(objects+symheap.PageBytes), pes)
	case anyHeap:
		o.Heap = most
	case o.Heap > s.Heap-objects:
		return fmt.Errorf("symmetric heap of %d bytes: with heap=%d of the fabric there is room for %d bytes, or %d for %d PEs on each node",
			o.Heap, s.Heap, s.Heap-objects, most, pes)
	}
	return nil
}

// newHeap makes the memory of this PE's heap. The heap owns the memory in common.
func (o *options) newHeap(ctx context.Context, size int, token uint64) (*symheap.Memory, error) {
	switch {
	case o.inProcess || !symheap.CanMap:
		return symheap.NewGo(size, token), nil
	case o.common == nil:
		return symheap.NewMapped(size, token)
	}
	off, n := o.common.Part(o.common.Node)
	m, err := symheap.NewIn(ctx, o.common.File, off, n, size, token)
	if err != nil {
		return nil, errors.Join(err, o.common.Close())
	}
	return m, nil
}

// offer lets the neighbour store to parts of the heap, where the fabric has option puts, or lends the heap to who can map it.
// It is called before another PE knows of this one. Then nothing is in the heap but the token, which nobody needs in a window.
//
// The parts are the beginning, with the work area of the team of all PEs, and objects. The areas of other teams are many, and
// seldom used. The first Options.Static bytes of objects are not: their front maps them a second time, from the heap's file.
func (w *World) offer(ctx context.Context) (err error) {
	f, _ := w.heap.File()
	if f == nil || w.opts.common != nil {
		return nil
	}
	if !w.opts.Strict {
		w.window, err = fabric.OpenHeapWindow(ctx, w.spec)
	}
	switch {
	case err != nil:
		return err
	case w.window != nil:
		return w.window.Map(w.heap.Bytes[:windowHead(len(w.peers))], w.heap.Bytes[w.windowObjects():])
	}
	w.recall = heapmem.Lend(w.token, f)
	return nil
}

// windowHead returns how much of the beginning of a heap is in a window, in a job of n PEs.
func windowHead(n int) int { return int(symheap.Shared + collective.AreaBytes(n)) }

// windowObjects returns where the objects begin of which a window has as many as fit.
func (w *World) windowObjects() int { return min(w.heap.Objects+w.opts.Static, w.heap.Size) }

// Reasons not to map a heap.
var (
	errStrict = errors.New("option Strict")
	errFar    = errors.New("its host is not a neighbour")
	errWindow = errors.New("a part of its heap is a bridge's window, which can only be written")
)

// mapPeer has operations on a PE be loads and stores, if its heap can be mapped here, or puts be stores to a window.
// It returns why the heap is not mapped.
func (w *World) mapPeer(ctx context.Context, p *peer, h *hello) error {
	if h.Fence {
		p.SetFence()
	}
	var m *symheap.Memory
	var err error
	switch win := w.window; {
	case w.opts.Strict:
		return errStrict
	case w.opts.common != nil:
		m, err = w.mapCommon(h)
	case h.Window != 0:
		// It is of the same session at both PEs if they know its numbers. Then the connection from which the hello came is
		// over the same link, and ends with it.
		if win != nil && h.Node == win.Node && h.Window == win.Far && win.Up() {
			w.mu.Lock()
			p.SetWindow(&onesided.Window{Window: win.Out, Head: uintptr(windowHead(len(w.peers))), Objects: uintptr(w.windowObjects()), Order: win.Order})
			w.mu.Unlock()
		}
		return errWindow
	case w.spec.Hops(h.Node) > 1:
		return errFar
	case w.opts.inProcess:
		if m = symheap.FindGo(h.Token); m == nil || len(m.Bytes) != w.heap.Size {
			return errors.New("its heap is of another process")
		}
	default:
		var f *os.File
		if f, err = heapmem.Fetch(ctx, w.spec, h.Node, w.port(h.PE), h.Token); err == nil {
			defer f.Close()
			m, err = symheap.Map(f, w.heap.Size, h.Token)
		}
	}
	if err != nil {
		return fmt.Errorf("its heap: %w", err)
	}
	p.mem = m
	p.Reach(m)
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
