package collective

import (
	"context"

	"github.com/ntbnet/ntbnet/internal/symheap"
)

// pieceBytes is how much of a large broadcast is passed on at a time.
const pieceBytes = 64 << 10

// Broadcast copies n bytes at offset src of PE root to offset dst of all PEs of the team.
// That includes root, unless spare says that root's dst stays as it is. dst and src may be
// the same.
//
// Small: root sends a message to each PE, from nine PEs on along a binomial tree, and
// does not wait.
//
// Large, on one host: root steps to each PE, which gets the bytes and steps back.
//
// Large otherwise: the PEs form a tree. Each PE steps to its parent in it, which then
// puts the bytes in pieces of 64 KiB, with a step after each. Where hosts form a ring or a
// line, the tree is chains from host to host, in both directions at once. So each cable
// carries the data once, and all cables are busy.
func (t *Team) Broadcast(ctx context.Context, dst, src uintptr, n, root int, spare bool) error {
	keep := dst != src && !spare
	switch {
	case n == 0:
		return nil
	case n <= messageBytes:
		return t.broadcastSmall(ctx, dst, src, n, root, keep)
	case t.OneHost:
		return t.broadcastGet(ctx, dst, src, n, root, keep)
	}
	return t.broadcastPut(ctx, dst, src, n, root, keep)
}

// In the following functions, keep says that root copies src to its own dst.

// broadcastSmall sends messages: root to all, or, where they are many, along a binomial tree, to the largest subtree first.
func (t *Team) broadcastSmall(ctx context.Context, dst, src uintptr, n, root int, keep bool) error {
	v, parent := t.local(src, n), root
	rank, bit := 0, 1
	if len(t.peers) > flat {
		for rank = t.rank(t.me, root); bit < len(t.peers) && rank&bit == 0; bit *= 2 {
		}
		parent = (rank&^bit + root) % len(t.peers)
	}
	if t.me != root {
		var err error
		if v, err = t.receive(ctx, parent, n); err != nil {
			return err
		}
	} else if len(t.peers) <= flat {
		if err := t.sendAll(ctx, v); err != nil {
			return err
		}
	}
	for bit /= 2; bit > 0; bit /= 2 {
		if rank+bit < len(t.peers) {
			if err := t.send(ctx, (rank+bit+root)%len(t.peers), v); err != nil {
				return err
			}
		}
	}
	if t.me != root || keep {
		t.keep(dst, v)
	}
	if t.me != root {
		t.took(parent)
	}
	return nil
}

// keep copies v to this PE's own heap.
func (t *Team) keep(dst uintptr, v []byte) { copy(t.local(dst, len(v)), v) }

func (t *Team) broadcastGet(ctx context.Context, dst, src uintptr, n, root int, keep bool) error {
	if t.me != root {
		if err := t.await(ctx, root); err != nil {
			return err
		}
		t.get(t.local(dst, n), src, root)
		t.step(root)
		return nil
	}
	t.stepAll()
	if keep {
		symheap.Copy(t.local(dst, n), t.local(src, n))
	}
	return t.awaitAll(ctx)
}

func (t *Team) broadcastPut(ctx context.Context, dst, src uintptr, n, root int, keep bool) error {
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
	for at := 0; at < n; at += pieceBytes {
		if t.me != root {
			if err := t.await(ctx, way.parent); err != nil {
				return err
			}
		}
		piece := min(pieceBytes, n-at)
		for _, pe := range way.children {
			t.put(dst+uintptr(at), t.local(from+uintptr(at), piece), pe)
			t.step(pe)
		}
	}
	if t.me == root && keep {
		symheap.Copy(t.local(dst, n), t.local(src, n))
	}
	return nil
}
