package shmem

import (
	"context"
	"fmt"

	"github.com/ntbnet/ntbnet/internal/onesided"
)

// Collective operations: chapter 9.9 of the specification, by teams. What they have in
// common:
//
// All PEs of the team make the same calls in the same order, with the same root and
// strides, and the same objects. How many elements take part is how many src has; dst may
// have more. Strides count elements. PEs are numbered as in the team.
//
// A call returns when dst here is complete and src may be used again. Other PEs may
// still be in it. Calls may follow each other at once, with any roots, and with teams
// that have PEs in common, as long as they do not use the same objects at the same time.
//
// They panic if a number is out of its range, an object is too short, or src and dst
// overlap. Where it says so, src and dst may be the same object. Errors are those of
// WaitUntil and of puts, and ErrMismatch in debug mode. If ctx ends one early, the team
// is of no use any more.
//
// The results do not depend on how a call is done, see internal/collective: a reduction
// combines PE 0's elements with PE 1's, then with PE 2's, and so on.

const nilTeam = "shmem: collective call of a nil Team"

// begin begins each collective call. It checks the arguments that all calls have.
func begin[T Elem](t *Team, dst, src Sym[T]) {
	if t == nil {
		panic(nilTeam)
	}
	if dst.o.N > 0 && dst.w != t.w || src.o.N > 0 && src.w != t.w {
		onesided.BadWorld()
	}
}

// enter begins a call without data. In debug mode it compares what all PEs call.
func (t *Team) enter(ctx context.Context, what call) error {
	if t == nil {
		panic(nilTeam)
	}
	if t.w.opts.debug {
		if err := t.compare(ctx, words{uint64(what)}); err != nil {
			return err
		}
	}
	return t.engine.Begin()
}

// apart panics if dst and src overlap. If same is true they may be the same object.
func apart[T Elem](dst, src Sym[T], m, n int, same bool) {
	d, s, size := dst.o.Off, src.o.Off, sizeOf[T]()
	if m == 0 || n == 0 || d+uintptr(m)*size <= s || s+uintptr(n)*size <= d || same && d == s {
		return
	}
	panic(fmt.Sprintf("shmem: objects of a collective call overlap: %d elements at offset %d, %d at %d", m, d, n, s))
}

// each panics if dst has no room for n elements of each PE.
func (t *Team) each(n, dst int) {
	if n > dst/len(t.pes) {
		panic(fmt.Sprintf("shmem: %d elements of each of %d PEs do not fit into an object of %d", n, len(t.pes), dst))
	}
}

// Broadcast copies src at PE root to the beginning of dst at all PEs of the team, root
// too, like shmem_broadcast. dst and src may be the same object.
func Broadcast[T Elem](ctx context.Context, t *Team, dst, src Sym[T], root int) error {
	begin(t, dst, src)
	n := src.o.N
	dst.room(n)
	if uint(root) >= uint(len(t.pes)) {
		onesided.BadPE(root, len(t.pes))
	}
	apart(dst, src, n, n, true)
	if t.w.opts.debug {
		if err := same(ctx, t, callBroadcast, dst, src, n, root, 0); err != nil {
			return err
		}
	}
	if err := t.engine.Begin(); err != nil {
		return err
	}
	return t.engine.Leave(t.engine.Broadcast(ctx, dst.o.Off, src.o.Off, n*int(sizeOf[T]()), root))
}
