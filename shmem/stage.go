package shmem

import "context"

// Collective calls on ordinary memory. internal/collective copies it to a stage in each
// PE's heap, and back.

// Bcast copies buf of PE root to buf of all PEs of the team. buf is any memory, and has the
// same length on all PEs. Otherwise Bcast is like Broadcast. It returns errors as
// collective calls on symmetric objects do.
func Bcast[T Elem](ctx context.Context, t *Team, buf []T, root int) error {
	return t.untyped().Bcast(ctx, bytesOf(buf), sizeOf[T](), root)
}

// AllReduce combines buf of all PEs of the team, element by element, and leaves the result
// in buf of all PEs. buf is any memory, and has the same length on all PEs. op is Sum,
// Prod, Min, Max, And, Or, Xor or a function of the program, the same on all PEs. PE 0's
// elements are combined with PE 1's, then with PE 2's, and so on.
// AllReduce returns errors as collective calls on symmetric objects do.
func AllReduce[T Elem](ctx context.Context, t *Team, buf []T, op Op[T]) error {
	return t.untyped().AllReduce(ctx, bytesOf(buf), sizeOf[T](), untyped(op), func() [2]uint64 { return signature(op) })
}

// signature returns what op makes of 3 and 5, as it is in memory. It differs between the
// operations of this package.
func signature[T Elem](op Op[T]) (sign [2]uint64) {
	acc, v := []T{3}, []T{5}
	op(acc, v)
	copy(bytesOf(sign[:]), bytesOf(acc))
	return sign
}
