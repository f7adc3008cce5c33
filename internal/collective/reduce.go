package collective

import (
	"context"

	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Fold combines each element of v with the element of acc that has the same index. Both have
// the same length, and are aligned as elements of a heap are.
type Fold func(acc, v []byte)

// Reduce combines n elements of size bytes at offset src of all PEs, and leaves the result
// at offset dst of all PEs. dst and src may be the same.
//
// Small: each PE sends its elements to each other PE as a message, and combines all.
//
// Large, on one host: the elements are divided among the PEs. All step to all. Each PE
// combines its part of all PEs' src, reading it there, stores it into all PEs' dst, and
// steps to all. Only it reads or writes that part of any PE, so dst may be src.
//
// Large otherwise: as on one host, but nothing is read from other PEs. Elements are
// taken in segments. All step to all, to say that dst may be written. Each PE puts to
// each other PE the part of its src that the other one is to combine. dst has room for
// just that: as many parts as PEs. All step to all. Each PE combines its parts, apart
// from dst, and steps to all: dst may be written again. It puts the result to all, and
// steps to all. If dst is src, each PE copies its src first. The remainder of the
// division by the number of PEs goes in messages.
func (t *Team) Reduce(ctx context.Context, dst, src uintptr, n, size int, fold Fold) error {
	switch {
	case n == 0:
		return nil
	case len(t.peers) == 1:
		copy(t.local(dst, n*size), t.local(src, n*size))
		return nil
	case n*size <= messageBytes:
		return t.reduceSmall(ctx, dst, src, n*size, fold)
	case t.OneHost:
		return t.reduceGet(ctx, dst, src, n*size, fold)
	}
	return t.reducePut(ctx, dst, src, n, size, fold)
}

func (t *Team) reduceSmall(ctx context.Context, dst, src uintptr, n int, fold Fold) error {
	own := t.local(src, n)
	if err := t.sendAll(ctx, own); err != nil {
		return err
	}
	acc := t.scratch(n)
	for pe := range t.peers {
		v := own
		if pe != t.me {
			var err error
			if v, err = t.receive(ctx, pe, n); err != nil {
				return err
			}
		}
		combine(acc, v, pe, fold)
		if pe != t.me {
			t.took(pe)
		}
	}
	t.keep(dst, acc)
	return nil
}

// combine adds what PE pe has to acc.
func combine(acc, v []byte, pe int, fold Fold) {
	if pe == 0 {
		copy(acc, v)
	} else {
		fold(acc, v)
	}
}

// chunkBytes is how much of its part a PE combines at a time. A chunk stays in the
// nearest cache.
const chunkBytes = 8 << 10

// reduceGet reduces n bytes. Parts are whole cache lines.
func (t *Team) reduceGet(ctx context.Context, dst, src uintptr, n int, fold Fold) error {
	t.stepAll()
	if err := t.awaitAll(ctx); err != nil {
		return err
	}
	lines := len(t.peers) * symheap.LineBytes
	part := (n + lines - 1) / lines * symheap.LineBytes
	last := min((t.me+1)*part, n)
	for at := min(t.me*part, n); at < last; at += chunkBytes {
		chunk := min(chunkBytes, last-at)
		buf := t.scratch(2 * chunk)
		acc, other := buf[:chunk], buf[chunk:]
		for pe := range t.peers {
			combine(acc, t.view(src+uintptr(at), other, pe), pe, fold)
		}
		for i := range t.peers {
			t.put(dst+uintptr(at), acc, t.next(i))
		}
	}
	t.stepAll()
	return t.awaitAll(ctx)
}

// view returns len(buf) bytes at an offset of PE pe: its memory if it is mapped here, or
// else a copy in buf.
func (t *Team) view(off uintptr, buf []byte, pe int) []byte {
	if base := t.peers[pe].Base(); base != nil {
		return symheap.Bytes(base, off, uintptr(len(buf)))
	}
	t.get(buf, off, pe)
	return buf
}

// segmentBytes is about how much a PE copies apart in a large reduction by puts.
const segmentBytes = 1 << 20

func (t *Team) reducePut(ctx context.Context, dst, src uintptr, n, size int, fold Fold) error {
	pes, at := len(t.peers), 0
	for n-at >= pes {
		part := min((n-at)/pes, max(1, segmentBytes/size/pes))
		off := uintptr(at * size)
		if err := t.reduceSegment(ctx, dst+off, src+off, part*size, fold); err != nil {
			return err
		}
		at += part * pes
	}
	for at < n {
		some := min(n-at, messageBytes/size)
		off := uintptr(at * size)
		if err := t.reduceSmall(ctx, dst+off, src+off, some*size, fold); err != nil {
			return err
		}
		at += some
	}
	return nil
}

// reduceSegment reduces one segment, in which each PE combines part bytes.
func (t *Team) reduceSegment(ctx context.Context, dst, src uintptr, part int, fold Fold) error {
	pes := len(t.peers)
	buf := t.scratch((1 + pes) * part)
	acc, own := buf[:part], t.local(src, pes*part)
	if dst == src {
		own = buf[part:]
		symheap.Copy(own, t.local(src, pes*part))
	}
	slot := dst + uintptr(t.me*part)
	t.stepAll() // dst may be written
	for i := 1; i < pes; i++ {
		pe := t.next(i)
		if err := t.await(ctx, pe); err != nil {
			return err
		}
		t.put(slot, own[pe*part:(pe+1)*part], pe)
		t.step(pe) // its part of our src is there
	}
	parts := t.local(dst, pes*part)
	for pe := range pes {
		v := own[pe*part : (pe+1)*part]
		if pe != t.me {
			if err := t.await(ctx, pe); err != nil {
				return err
			}
			v = parts[pe*part : (pe+1)*part]
		}
		combine(acc, v, pe, fold)
	}
	t.stepAll() // dst may be written again
	symheap.Copy(t.local(slot, part), acc)
	for i := 1; i < pes; i++ {
		pe := t.next(i)
		if err := t.await(ctx, pe); err != nil {
			return err
		}
		t.put(slot, acc, pe)
		t.step(pe) // the result is there
	}
	return t.awaitAll(ctx)
}
