package shmem

import "context"

// segmentBytes is about how much a PE copies apart in a large reduction by puts.
const segmentBytes = 1 << 20

func reducePut[T Elem](ctx context.Context, t *Team, dst, src Sym[T], n int, fold Op[T]) error {
	size, pes := int(sizeOf[T]()), len(t.pes)
	at := 0
	for n-at >= pes {
		part := min((n-at)/pes, max(1, segmentBytes/size/pes))
		to := at + part*pes
		if err := reduceSegment(ctx, t, dst.Slice(at, to), src.Slice(at, to), part, fold); err != nil {
			return err
		}
		at = to
	}
	for at < n {
		to := min(n, at+messageBytes/size)
		if err := reduceSmall(ctx, t, dst.Slice(at, to), src.Slice(at, to), to-at, fold); err != nil {
			return err
		}
		at = to
	}
	return nil
}

// reduceSegment reduces one segment, in which each PE combines part elements.
func reduceSegment[T Elem](ctx context.Context, t *Team, dst, src Sym[T], part int, fold Op[T]) error {
	pes := len(t.pes)
	buf := scratch[T](t, (1+pes)*part)
	acc, own := buf[:part], src.Local()
	if dst.off == src.off {
		own = buf[part:]
		copyElems(own, src.Local())
	}
	slot := dst.Slice(t.me*part, (t.me+1)*part)
	t.stepAll() // dst may be written
	for i := 1; i < pes; i++ {
		pe := t.next(i)
		if err := t.await(ctx, pe); err != nil {
			return err
		}
		Put(t.ctx, slot, own[pe*part:(pe+1)*part], pe)
		t.step(pe) // its part of our src is there
	}
	parts := dst.Local()
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
	copyElems(slot.Local(), acc)
	for i := 1; i < pes; i++ {
		pe := t.next(i)
		if err := t.await(ctx, pe); err != nil {
			return err
		}
		Put(t.ctx, slot, acc, pe)
		t.step(pe) // the result is there
	}
	return t.awaitAll(ctx)
}

// view returns the beginning of src at PE pe: its memory if it is mapped here, or
// else a copy in buf.
func view[T Elem](t *Team, src Sym[T], buf []T, pe int) []T {
	if v, ok := src.Ptr(t.pes[pe]); ok {
		return v
	}
	Get(t.ctx, buf, src, pe)
	return buf
}
