package shmem

import "context"

// pieceBytes is how much of a large broadcast is passed on at a time.
const pieceBytes = 64 << 10

// Broadcast copies src at PE root to the beginning of dst at all PEs of the team, root
// too, like shmem_broadcast. dst and src may be the same object.
//
// Small: root sends a message to each PE, from nine PEs on along a binomial tree, and
// does not wait.
//
// Large, on one host: root steps to each PE, which gets the elements and steps back.
//
// Large otherwise: the PEs form a tree. Each PE steps to its parent in it, which then
// puts the elements in pieces of 64 KiB, with a step after each. Where hosts form a
// ring or a line, the tree is chains from host to host, in both directions at once. So
// each cable carries the data once, and all cables are busy.
func Broadcast[T Elem](ctx context.Context, t *Team, dst, src Sym[T], root int) error {
	begin(t, dst, src)
	n := src.n
	dst.room(n)
	if uint(root) >= uint(len(t.pes)) {
		badPE(root, len(t.pes))
	}
	apart(dst, src, n, n, true)
	if t.w.opts.debug {
		if err := same(ctx, t, callBroadcast, dst, src, n, root, 0); err != nil {
			return err
		}
	}
	if err := t.begun(); err != nil {
		return err
	}
	return t.leave(broadcast(ctx, t, dst, src, n, root))
}

// broadcast copies n elements in the way that suits their number. The caller holds the
// team's mu.
func broadcast[T Elem](ctx context.Context, t *Team, dst, src Sym[T], n, root int) error {
	switch {
	case n == 0:
		return nil
	case fits[T](n):
		return broadcastSmall(ctx, t, dst, src, n, root)
	case t.oneHost:
		return broadcastGet(ctx, t, dst, src, n, root)
	}
	return broadcastPut(ctx, t, dst, src, n, root)
}

func broadcastSmall[T Elem](ctx context.Context, t *Team, dst, src Sym[T], n, root int) error {
	if len(t.pes) > flat {
		return broadcastTree(ctx, t, dst, src, n, root)
	}
	if t.me == root {
		v := src.Local()[:n]
		if err := sendAll(ctx, t, v); err != nil {
			return err
		}
		keep(dst, v)
		return nil
	}
	v, err := receive[T](ctx, t, root, n)
	if err != nil {
		return err
	}
	keep(dst, v)
	t.took(root)
	return nil
}

// keep copies v to this PE's own dst.
func keep[T Elem](dst Sym[T], v []T) { put(dst.w.heap.base, dst.off, v) }

// broadcastTree sends messages along a binomial tree, to the largest subtree first.
func broadcastTree[T Elem](ctx context.Context, t *Team, dst, src Sym[T], n, root int) error {
	v := src.Local()[:n]
	rank, bit := t.rank(t.me, root), 1
	for ; bit < len(t.pes) && rank&bit == 0; bit *= 2 {
	}
	parent := (rank&^bit + root) % len(t.pes)
	if t.me != root {
		var err error
		if v, err = receive[T](ctx, t, parent, n); err != nil {
			return err
		}
	}
	for bit /= 2; bit > 0; bit /= 2 {
		if rank+bit < len(t.pes) {
			if err := send(ctx, t, (rank+bit+root)%len(t.pes), v); err != nil {
				return err
			}
		}
	}
	keep(dst, v)
	if t.me != root {
		t.took(parent)
	}
	return nil
}

func broadcastGet[T Elem](ctx context.Context, t *Team, dst, src Sym[T], n, root int) error {
	if t.me != root {
		if err := t.await(ctx, root); err != nil {
			return err
		}
		Get(t.ctx, dst.Local()[:n], src, root)
		t.step(root)
		return nil
	}
	t.stepAll()
	if dst.off != src.off {
		copyElems(dst.Local(), src.Local()[:n])
	}
	return t.awaitAll(ctx)
}

func broadcastPut[T Elem](ctx context.Context, t *Team, dst, src Sym[T], n, root int) error {
	way := t.treeOf(root)
	from := dst
	if t.me == root {
		from = src
	} else {
		t.step(way.parent) // dst may be written
	}
	for _, pe := range way.children {
		if err := t.await(ctx, pe); err != nil {
			return err
		}
	}
	piece := pieceBytes / int(sizeOf[T]())
	for at := 0; at < n; at += piece {
		if t.me != root {
			if err := t.await(ctx, way.parent); err != nil {
				return err
			}
		}
		to := min(at+piece, n)
		for _, pe := range way.children {
			Put(t.ctx, dst.Slice(at, to), from.Local()[at:to], pe)
			t.step(pe)
		}
	}
	if t.me == root && dst.off != src.off {
		copyElems(dst.Local(), src.Local()[:n])
	}
	return nil
}
