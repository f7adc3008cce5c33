package collective

import (
	"context"
	"unsafe"

	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Exchange is one AlltoAll: N elements of Size bytes from each PE to each.
type Exchange struct {
	Dst, Src             uintptr // offsets
	DstStride, SrcStride int     // elements from one to the next, at least 1
	N                    int
	Size                 uintptr
}

// AlltoAll copies block j of PE i's src to block i of PE j's dst, for all i and j. A block
// has N elements. Block k begins at element k*N*stride.
//
// Small: as messages.
//
// Large, on one host: each PE steps to each, gets its blocks and steps back.
//
// Otherwise each PE steps to each, to say that its dst may be written, and puts its
// blocks.
func (t *Team) AlltoAll(ctx context.Context, x Exchange) error {
	if x.N == 0 {
		return nil
	}
	x.spread(t.local(x.to(t.me), x.span(x.DstStride)), x.DstStride, t.local(x.from(t.me), x.span(x.SrcStride)), x.SrcStride)
	switch {
	case x.N*int(x.Size) <= messageBytes:
		return x.small(ctx, t)
	case t.OneHost:
		return x.get(ctx, t)
	}
	return x.put(ctx, t)
}

// from and to return where a PE's block begins, in src and in dst.
func (x *Exchange) from(pe int) uintptr { return x.Src + uintptr(pe*x.N*x.SrcStride)*x.Size }
func (x *Exchange) to(pe int) uintptr   { return x.Dst + uintptr(pe*x.N*x.DstStride)*x.Size }

// span returns how many bytes a block takes.
func (x *Exchange) span(stride int) int { return ((x.N-1)*stride + 1) * int(x.Size) }

// spread copies a block from one stride to another, in this PE's own memory.
func (x *Exchange) spread(dst []byte, dstStride int, src []byte, srcStride int) {
	symheap.PutStrided(&dst[0], 0, unsafe.Pointer(&src[0]), x.strided(dstStride, srcStride))
}

// strided returns a block by its strides. Without gaps it is one piece.
func (x *Exchange) strided(remote, local int) symheap.Strided {
	if remote == 1 && local == 1 {
		return symheap.Strided{N: 1, Block: x.N, Remote: x.N, Local: x.N, Size: x.Size}
	}
	return symheap.Strided{N: x.N, Block: 1, Remote: remote, Local: local, Size: x.Size}
}

func (x *Exchange) small(ctx context.Context, t *Team) error {
	buf := t.scratch(x.N * int(x.Size))
	for i := 1; i < len(t.peers); i++ {
		pe := t.next(i)
		x.spread(buf, 1, t.local(x.from(pe), x.span(x.SrcStride)), x.SrcStride)
		if err := t.send(ctx, pe, buf); err != nil {
			return err
		}
	}
	for i := 1; i < len(t.peers); i++ {
		pe := t.next(i)
		v, err := t.receive(ctx, pe, len(buf))
		if err != nil {
			return err
		}
		x.spread(t.local(x.to(pe), x.span(x.DstStride)), x.DstStride, v, 1)
		t.took(pe)
	}
	return nil
}

// object returns a block's memory as an object of all PEs.
func (x *Exchange) object(t *Team, off uintptr, stride int) onesided.Object {
	return onesided.Object{Space: t.space, Off: off, N: (x.N-1)*stride + 1}
}

func (x *Exchange) get(ctx context.Context, t *Team) error {
	return t.trade(ctx, func(pe int) {
		dst := t.local(x.to(pe), x.span(x.DstStride))
		o := x.object(t, x.from(t.me), x.SrcStride)
		t.ctx.GetStrided(unsafe.Pointer(&dst[0]), len(dst)/int(x.Size), o, x.strided(x.SrcStride, x.DstStride), pe)
	})
}

func (x *Exchange) put(ctx context.Context, t *Team) error {
	return t.trade(ctx, func(pe int) {
		src := t.local(x.from(pe), x.span(x.SrcStride))
		o := x.object(t, x.to(t.me), x.DstStride)
		t.ctx.PutStrided(o, unsafe.Pointer(&src[0]), len(src)/int(x.Size), x.strided(x.DstStride, x.SrcStride), pe)
	})
}
