package job

import (
	"context"
	"errors"
	"fmt"

	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Memory management. What its calls have in common is described in package shmem.

// Alloc makes a symmetric object of size bytes at a multiple of align, a power of two up
// to 1 GiB, and returns its offset. What is in it is not defined. It returns ErrMismatch
// on all PEs if they ask for different sizes, and symheap.ErrFull on all if there is no
// room. An object of 0 bytes has an offset of its own, too.
func (w *World) Alloc(ctx context.Context, size uint64, align int) (uintptr, error) {
	w.Check()
	if align < 1 || align > symheap.MaxAlign || align&(align-1) != 0 {
		panic(fmt.Sprintf("shmem: alignment of %d bytes", align))
	}
	align = max(align, symheap.LineBytes)
	if err := w.collective(ctx, callAlloc, size, uint64(align)); err != nil {
		return 0, err
	}
	if w.opts.inProcess && align > symheap.GoAlign {
		return 0, fmt.Errorf("shmem: alignment of %d bytes: heaps of one process have at most %d: %w", align, symheap.GoAlign, errors.ErrUnsupported)
	}
	return w.heap.Alloc(size, uintptr(align))
}

// AllocZeroed is Alloc of zeros, at a multiple of a cache line.
func (w *World) AllocZeroed(ctx context.Context, size uint64) (uintptr, error) {
	off, err := w.Alloc(ctx, size, symheap.LineBytes)
	if err != nil {
		return 0, err
	}
	clear(w.heap.At(off, int(size)))
	return off, w.team.Sync(ctx)
}

// Free gives the object of size bytes at an offset back. It panics if that is not a whole
// object.
func (w *World) Free(ctx context.Context, off uintptr, size uint64) error {
	w.Check()
	// All PEs must have stopped using the object before its memory becomes another
	// object.
	if err := w.collective(ctx, callFree, uint64(off)); err != nil {
		return err
	}
	w.turns.forget(off, size)
	if !w.heap.Free(off, size) {
		panic(fmt.Sprintf("shmem: free of %d bytes at offset %d, which are no whole object", size, off))
	}
	return nil
}

// collective is the common part of these calls, each of which is a barrier too. It
// completes this PE's operations on the default context, waits until all PEs have
// called it, and compares what they passed.
func (w *World) collective(ctx context.Context, what Call, args ...uint64) error {
	if err := w.ctx.Quiet(); err != nil {
		return err
	}
	mine := words{uint64(what)}
	copy(mine[1:], args)
	return w.team.compare(ctx, mine)
}

// At returns the object of n elements of size bytes at an offset. It returns false if the
// bytes are not memory for objects, or not aligned.
func (w *World) At(off, n int, size uintptr) (onesided.Object, bool) {
	w.Check()
	if off < w.heap.Objects || off%alignOf(size) != 0 || off > w.heap.Size ||
		n < 0 || n > (w.heap.Size-off)/int(size) {
		return onesided.Object{}, false
	}
	return onesided.Object{Space: w.space, Off: uintptr(off), N: n}, true
}

// alignOf returns the alignment of elements of size bytes in a heap. Numbers of 8 bytes
// are stored and loaded at once, also those of two halves, so they are aligned to 8 bytes.
func alignOf(size uintptr) int { return int(min(size, 8)) }
