package job

import (
	"context"
	"encoding/binary"

	"github.com/ntbnet/ntbnet/internal/collective"
	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/heapmem"
	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/symheap"
)

// openWindow has parts of the heap be memory that the neighbour can store to, where the fabric has option puts: the
// beginning, with the work area of the team of all PEs, and objects. The areas of other teams are many, and seldom used.
// The first Options.Static bytes of objects are not: their front maps them a second time, from the heap's file.
// It is called before another PE knows of this one. Then nothing is in the heap but the token, which a neighbour may
// change: nobody maps this heap.
func (w *World) openWindow(ctx context.Context) (err error) {
	if w.opts.Strict || w.opts.inProcess {
		return nil
	}
	if w.window, err = fabric.OpenHeapWindow(ctx, w.spec); w.window != nil {
		head := windowHead(len(w.peers))
		err = w.window.Map(w.heap.Bytes[:head], w.heap.Bytes[w.windowObjects():])
		w.heap.Mark(w.token)
	}
	return err
}

// windowHead returns how much of the beginning of a heap is in a window, in a job of n PEs.
func windowHead(n int) int { return int(symheap.Shared + collective.AreaBytes(n)) }

// windowObjects returns where the objects begin of which a window has as many as fit.
func (w *World) windowObjects() int { return min(w.heap.Objects+w.opts.Static, w.heap.Size) }

// windowTo returns what a neighbour's bridge has for heaps, nil if it has nothing.
func (w *World) windowTo(node int) *heapmem.Session {
	if w.window == nil {
		return nil
	}
	return w.window.To(node)
}

// session returns what the bridge to another PE has for heaps, if both PEs have it of the same session, and that is up. Then
// the connection from which its hello came is over the same link, and ends with it.
func (w *World) session(h *hello) *heapmem.Session {
	if s := w.windowTo(h.Node); s != nil && h.Window == s.Far && s.Up() {
		return s
	}
	return nil
}

// marked reports whether the memory of another PE's window is its heap, as far as that can be loaded.
func (w *World) marked(h *hello) bool {
	var token [8]byte
	s := w.session(h)
	return s == nil || !s.Load(token[:], symheap.TokenAt) || binary.NativeEndian.Uint64(token[:]) == h.Token
}

// across returns the window of a neighbour. All heaps have one size.
func (w *World) across(s *heapmem.Session) *onesided.Window {
	head, objects, me := windowHead(len(w.peers)), w.windowObjects(), w.spec.Node
	return &onesided.Window{Window: s.Out.Slice(0, min(s.Out.Len(), head+w.heap.Size-objects)),
		Head: uintptr(head), Objects: uintptr(objects), Order: s.Order, Load: s.Load,
		Near: neighbour(me, s.Node), Far: neighbour(s.Node, me)}
}

// neighbour returns which of a node's neighbours another node is, from 0 on.
func neighbour(node, of int) int {
	if of > node {
		of--
	}
	return of - 1
}
