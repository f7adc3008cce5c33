package collective

import (
	"context"

	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Scan combines n bytes of elements at offset src of all PEs before this one, in the order of the PEs, and
// leaves the result at offset dst here. If own is true, what this PE has comes last. Nothing combined is
// zeros. dst and src may be the same.
//
// Small: each PE sends its elements to each PE behind it as a message.
//
// Large: elements are taken in segments. Each PE steps to each PE behind it, gets the elements of each PE
// before it, and steps back. It stores its result when all behind it have done so, since dst may be src.
func (t *Team) Scan(ctx context.Context, dst, src uintptr, n int, own bool, fold Fold) error {
	if n <= messageBytes {
		return t.scanSmall(ctx, dst, src, n, own, fold)
	}
	for at := 0; at < n; at += segmentBytes {
		some := min(n-at, segmentBytes)
		if err := t.scanSegment(ctx, dst+uintptr(at), src+uintptr(at), some, own, fold); err != nil {
			return err
		}
	}
	return nil
}

func (t *Team) scanSmall(ctx context.Context, dst, src uintptr, n int, own bool, fold Fold) error {
	if n == 0 {
		return nil
	}
	mine := t.local(src, n)
	for pe := t.me + 1; pe < len(t.peers); pe++ {
		if err := t.send(ctx, pe, mine); err != nil {
			return err
		}
	}
	acc := t.scratch(n)
	clear(acc)
	for pe := range t.me {
		v, err := t.receive(ctx, pe, n)
		if err != nil {
			return err
		}
		combine(acc, v, pe, fold)
		t.took(pe)
	}
	if own {
		combine(acc, mine, t.me, fold)
	}
	t.keep(dst, acc)
	return nil
}

func (t *Team) scanSegment(ctx context.Context, dst, src uintptr, n int, own bool, fold Fold) error {
	for pe := t.me + 1; pe < len(t.peers); pe++ {
		t.step(pe) // our src may be read
	}
	buf := t.scratch(2 * n)
	acc, other := buf[:n], buf[n:]
	clear(acc)
	for pe := range t.me {
		if err := t.await(ctx, pe); err != nil {
			return err
		}
		combine(acc, t.view(src, other, pe), pe, fold)
		t.step(pe) // its src has been read
	}
	if own {
		combine(acc, t.local(src, n), t.me, fold)
	}
	for pe := t.me + 1; pe < len(t.peers); pe++ {
		if err := t.await(ctx, pe); err != nil {
			return err
		}
	}
	symheap.Copy(t.local(dst, n), acc)
	return nil
}
