package shmem

import (
	"context"
	"fmt"
)

// Collective operations: chapter 9.9 of the specification, by teams. What they have in
// common:
//
// All PEs of the team make the same calls in the same order, with the same root and
// strides, and the same objects. How many elements take part is how many src has; dst may
// have more. Strides count elements. PEs are numbered as in the team.
//
// A call returns when dst here is complete and src may be used again. Other PEs may
// still be in it. Others do not touch a PE's dst or src before it has called, or after
// it has returned. dst is written by its own PE, or by a PE to which that one has taken
// a step, which means "my dst may be written". It is complete when all writers have
// taken a step that says "it is written". A src that others read is free when all have
// taken a step that says "it was read". So calls may follow each other at once, with any
// roots, and with teams that have PEs in common, as long as they do not use the same
// objects at the same time.
//
// They panic if a number is out of its range, an object is too short, or src and dst
// overlap. Where it says so, src and dst may be the same object. Errors are those of
// WaitUntil and of puts, and ErrMismatch in debug mode. If ctx ends one early, the team
// is of no use any more.
//
// How they become writes. "Small" is what fits into a message of 48 bytes, see steps.go.
// Where all PEs of a team are on one host, with their memory mapped to each other, large
// data is read from there, by all at once. Otherwise nothing is read from another PE,
// because reading over a bridge is slow. Data is put instead. If hosts form a ring or a
// line, it is put to a neighbour as far as that helps.
//
//	                 small            large, one host       large, several hosts or Strict
//	Broadcast        message to each  each gets             pipeline, ring: two chains of
//	                 (9 PEs or more:                        neighbours, else binomial tree
//	                 binomial tree)
//	Collect, FCollect message to each each gets from each   ring: N-1 rounds between
//	                                                        neighbours, else put to each
//	AlltoAll         message to each  each gets from each   put to each
//	reductions       message to each  each gets its part    each puts parts to those that
//	                                  of all, combines it,  combine them, and these the
//	                                  puts it to all        result to all
//
// Whichever way is taken, a reduction combines PE 0's elements with PE 1's, then with PE
// 2's, and so on. So results do not depend on it.

const nilTeam = "shmem: collective call of a nil Team"

// begin begins each collective call. It checks the arguments that all calls have.
func begin[T Elem](t *Team, dst, src Sym[T]) {
	if t == nil {
		panic(nilTeam)
	}
	if dst.n > 0 && dst.w != t.w || src.n > 0 && src.w != t.w {
		badWorld()
	}
}

// begun takes the team's lock. It fails if an earlier collective call did.
func (t *Team) begun() error {
	t.w.check()
	t.mu.Lock()
	if t.ended {
		t.mu.Unlock()
		panic("shmem: use of a destroyed Team")
	}
	if err := t.err; err != nil {
		t.mu.Unlock()
		return err
	}
	return nil
}

// enter is begun, and in debug mode also compares what all PEs call.
func (t *Team) enter(ctx context.Context, what call) error {
	if t == nil {
		panic(nilTeam)
	}
	if t.w.opts.debug {
		if err := t.compare(ctx, words{uint64(what)}); err != nil {
			return err
		}
	}
	return t.begun()
}

// leave ends what begun began.
func (t *Team) leave(err error) error {
	if err == nil {
		err = t.ctx.Err()
	}
	if err != nil {
		t.err = err
	}
	t.mu.Unlock()
	return err
}

// apart panics if dst and src overlap. If same is true they may be the same object.
func apart[T Elem](dst, src Sym[T], m, n int, same bool) {
	d, s, size := dst.off, src.off, sizeOf[T]()
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
