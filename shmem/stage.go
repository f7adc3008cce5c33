package shmem

import (
	"context"

	"github.com/ntbnet/ntbnet/internal/onesided"
)

// Collective calls on ordinary memory. internal/collective copies it to a stage in each
// PE's heap, and back.

// Bcast copies buf of PE root to buf of all PEs of the team. buf is any memory, and has the
// same length on all PEs. Otherwise Bcast is like Broadcast. It returns errors as
// collective calls on symmetric objects do.
func Bcast[T Elem](ctx context.Context, t *Team, buf []T, root int) error {
	if t == nil {
		panic(nilTeam)
	}
	if uint(root) >= uint(len(t.pes)) {
		onesided.BadPE(root, len(t.pes))
	}
	if t.w.opts.debug {
		mine := words{uint64(callBcast) | uint64(sizeOf[T]())<<8, uint64(len(buf)), 4: uint64(root)}
		if err := t.compare(ctx, mine); err != nil {
			return err
		}
	}
	if err := t.engine.Begin(); err != nil {
		return err
	}
	return t.engine.Leave(t.engine.Bcast(ctx, bytesOf(buf), root))
}

// AllReduce combines buf of all PEs of the team, element by element, and leaves the result
// in buf of all PEs. buf is any memory, and has the same length on all PEs. op is Sum,
// Prod, Min, Max, And, Or, Xor or a function of the program, the same on all PEs. PE 0's
// elements are combined with PE 1's, then with PE 2's, and so on.
// AllReduce returns errors as collective calls on symmetric objects do.
func AllReduce[T Elem](ctx context.Context, t *Team, buf []T, op Op[T]) error {
	if t == nil {
		panic(nilTeam)
	}
	if t.w.opts.debug {
		sign := signature(op)
		mine := words{uint64(callAllReduce) | uint64(sizeOf[T]())<<8, uint64(len(buf)), 4: sign[0], 5: sign[1]}
		if err := t.compare(ctx, mine); err != nil {
			return err
		}
	}
	if err := t.engine.Begin(); err != nil {
		return err
	}
	return t.engine.Leave(t.engine.AllReduce(ctx, bytesOf(buf), int(sizeOf[T]()), func(acc, v []byte) {
		op(elems[T](acc), elems[T](v))
	}))
}

// signature returns what op makes of 3 and 5, as it is in memory. It differs between the
// operations of this package.
func signature[T Elem](op Op[T]) (sign [2]uint64) {
	acc, v := []T{3}, []T{5}
	op(acc, v)
	copy(bytesOf(sign[:]), bytesOf(acc))
	return sign
}
