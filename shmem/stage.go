package shmem

import "context"

// Collective calls on ordinary memory. A team's work area has a stage of 64 KiB in each
// PE's heap. The calls copy a piece of the caller's memory there, do a collective on the
// stage, and copy the result back. A piece that fits into a message costs two copies in
// the nearest cache; a longer one costs two more copies than the same call on symmetric
// objects.

// stageBytes is the size of a stage. Elements of all types fit without a rest.
const stageBytes = 64 << 10

// stage returns n elements of the team's stage.
func stage[T Elem](t *Team, n int) Sym[T] {
	return Sym[T]{t.w, t.area + linesBytes(len(t.w.peers)), n}
}

// Bcast copies buf of PE root to buf of all PEs of the team. buf is any memory, and has the
// same length on all PEs. Otherwise Bcast is like Broadcast. It returns errors as
// collective calls on symmetric objects do.
func Bcast[T Elem](ctx context.Context, t *Team, buf []T, root int) error {
	if t == nil {
		panic(nilTeam)
	}
	if uint(root) >= uint(len(t.pes)) {
		badPE(root, len(t.pes))
	}
	if t.w.opts.debug {
		mine := words{uint64(callBcast) | uint64(sizeOf[T]())<<8, uint64(len(buf)), 4: uint64(root)}
		if err := t.compare(ctx, mine); err != nil {
			return err
		}
	}
	if err := t.begun(); err != nil {
		return err
	}
	return t.leave(staged(t, buf, t.me == root, t.me != root, func(s Sym[T]) error {
		return broadcast(ctx, t, s, s, s.n, root)
	}))
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
	if err := t.begun(); err != nil {
		return err
	}
	return t.leave(staged(t, buf, true, true, func(s Sym[T]) error {
		return reduceAll(ctx, t, s, s, s.n, op)
	}))
}

// staged calls f for one piece of buf after the other. If in is true, the piece is copied to
// the stage before. If out is true, it is copied back after. The caller holds the team's mu.
func staged[T Elem](t *Team, buf []T, in, out bool, f func(s Sym[T]) error) error {
	for len(buf) > 0 {
		s := stage[T](t, min(len(buf), stageBytes/int(sizeOf[T]())))
		if in {
			copy(s.Local(), buf)
		}
		if err := f(s); err != nil {
			return err
		}
		if out {
			copy(buf, s.Local())
		}
		buf = buf[s.n:]
	}
	return nil
}

// signature returns what op makes of 3 and 5, as it is in memory. It differs between the
// operations of this package.
func signature[T Elem](op Op[T]) (sign [2]uint64) {
	acc, v := []T{3}, []T{5}
	op(acc, v)
	copy(bytesOf(sign[:]), bytesOf(acc))
	return sign
}
