package collective

import (
	"context"

	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Blocks are the offsets of the PEs' blocks in dst, in bytes from its beginning.
type Blocks struct {
	Bytes   int       // of each block, if they are alike and Ends is nil
	Ends    []int     // end of each block, if lengths differ
	Src     []uintptr // where each PE has its block, if lengths differ
	Longest int       // bytes of the longest block
}

// of returns the offset of a PE's block.
func (b *Blocks) of(pe int) (from, to int) {
	switch {
	case b.Ends == nil:
		return pe * b.Bytes, (pe + 1) * b.Bytes
	case pe == 0:
		return 0, b.Ends[0]
	}
	return b.Ends[pe-1], b.Ends[pe]
}

// Gather copies the blocks of all PEs, each at offset src there, to their places in dst of
// all PEs.
//
// Small: each PE sends its block to each other PE as a message.
//
// Large, on one host: each PE steps to each, gets the others' blocks and steps back.
//
// Where hosts form a ring or a line: the PEs, in the order of their hosts, pass the
// blocks on around, each to the next one only. That one first steps back to say that
// its dst may be written.
//
// Otherwise each PE steps to each to say so, and puts its block to each.
func (t *Team) Gather(ctx context.Context, dst, src uintptr, b Blocks) error {
	if b.Longest == 0 {
		return nil
	}
	from, to := b.of(t.me)
	mine := t.local(src, to-from)
	symheap.Copy(t.local(dst+uintptr(from), to-from), mine)
	switch {
	case b.Longest <= messageBytes:
		return t.gatherSmall(ctx, dst, mine, &b)
	case t.OneHost:
		return t.gatherGet(ctx, dst, src, &b)
	case t.chained:
		return t.gatherRing(ctx, dst, &b)
	}
	return t.gatherPut(ctx, dst, mine, &b)
}

func (t *Team) gatherSmall(ctx context.Context, dst uintptr, mine []byte, b *Blocks) error {
	if err := t.sendAll(ctx, mine); err != nil {
		return err
	}
	for i := 1; i < len(t.peers); i++ {
		pe := t.next(i)
		from, to := b.of(pe)
		v, err := t.receive(ctx, pe, to-from)
		if err != nil {
			return err
		}
		t.keep(dst+uintptr(from), v)
		t.took(pe)
	}
	return nil
}

func (t *Team) gatherGet(ctx context.Context, dst, src uintptr, b *Blocks) error {
	return t.trade(ctx, func(pe int) {
		from, to := b.of(pe)
		at := src
		if b.Src != nil {
			at = b.Src[pe]
		}
		t.get(t.local(dst+uintptr(from), to-from), at, pe)
	})
}

func (t *Team) gatherPut(ctx context.Context, dst uintptr, mine []byte, b *Blocks) error {
	from, _ := b.of(t.me)
	return t.trade(ctx, func(pe int) { t.put(dst+uintptr(from), mine, pe) })
}

// gatherRing passes blocks on around the ring. Only the PE before this one writes
// to this one's dst. The block it writes is never the one that this PE passes on
// meanwhile.
func (t *Team) gatherRing(ctx context.Context, dst uintptr, b *Blocks) error {
	n := len(t.peers)
	before, after := t.ring[(t.index+n-1)%n], t.ring[(t.index+1)%n]
	t.step(before)
	if err := t.await(ctx, after); err != nil {
		return err
	}
	for i := range n - 1 {
		from, to := b.of(t.ring[(t.index+n-i)%n])
		at := dst + uintptr(from)
		t.put(at, t.local(at, to-from), after)
		t.step(after)
		if err := t.await(ctx, before); err != nil {
			return err
		}
	}
	return nil
}
