package job

import (
	"context"

	"github.com/ntbnet/ntbnet/internal/collective"
	"github.com/ntbnet/ntbnet/internal/fabric"
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

// putsTo reports whether the bridge to another PE has memory for heaps, of the same session at both PEs, and that is up. Then
// the connection from which its hello came is over the same link, and ends with it.
func (w *World) putsTo(h *hello) bool {
	return w.window != nil && h.Node == w.window.Node && h.Window == w.window.Far && w.window.Up()
}

// across returns the window of the neighbour. All heaps have one size.
func (w *World) across() *onesided.Window {
	head, objects, out := windowHead(len(w.peers)), w.windowObjects(), w.window.Out
	return &onesided.Window{Window: out.Slice(0, min(out.Len(), head+w.heap.Size-objects)),
		Head: uintptr(head), Objects: uintptr(objects), Order: w.window.Order}
}
