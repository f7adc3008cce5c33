package shmem

import "context"

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

// Broadcast copies src at PE root to the beginning of dst at all PEs of the team, root
// too, like shmem_broadcast. dst and src may be the same object.
func Broadcast[T Elem](ctx context.Context, t *Team, dst, src Sym[T], root int) error {
	return t.untyped().Broadcast(ctx, dst.o, src.o, sizeOf[T](), root)
}
