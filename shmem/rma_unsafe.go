package shmem

import (
	"unsafe"

	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Remote memory access: chapter 9.5 of the specification. These functions give
// internal/onesided what it does not know: the size of an element, and its memory. They are
// short enough to be inlined, so that one call is made.

// Put copies src to the beginning of dst at PE pe, like shmem_put.
//
// It panics if src does not fit or there is no such PE. A failure of the fabric is
// recorded in c, see Quiet. Then perhaps nothing was stored.
func Put[T Elem](c *Ctx, dst Sym[T], src []T, pe int) {
	c.core.Put(dst.o, unsafe.Pointer(unsafe.SliceData(src)), len(src), unsafe.Sizeof(*(*T)(nil)), pe)
}

// Get copies the beginning of src at PE pe to dst, like shmem_get. If the fabric
// fails, dst is left as it was, at least in part, and the failure is recorded in c.
func Get[T Elem](c *Ctx, dst []T, src Sym[T], pe int) {
	c.core.Get(unsafe.Pointer(unsafe.SliceData(dst)), len(dst), src.o, unsafe.Sizeof(*(*T)(nil)), pe)
}

// P stores v in element i of dst at PE pe, like shmem_p. A PE that waits for the
// element there never sees half of v, if v has 8 bytes or less.
func P[T Elem](c *Ctx, dst Sym[T], i int, v T, pe int) {
	var e element
	*(*T)(unsafe.Pointer(&e)) = v
	c.core.P(dst.o, i, unsafe.Sizeof(v), e.lo, e.hi, pe)
}

// G returns element i of src at PE pe, like shmem_g. If the fabric fails, G returns
// 0 and records the failure in c. See Ctx.Err and TryG.
func G[T Elem](c *Ctx, src Sym[T], i, pe int) T {
	var e element
	e.lo, e.hi = c.core.G(src.o, i, unsafe.Sizeof(*(*T)(nil)), pe)
	return *(*T)(unsafe.Pointer(&e))
}

// TryG is like G, but returns the error of this call, an *OpError, and does not
// record it in c.
func TryG[T Elem](c *Ctx, src Sym[T], i, pe int) (T, error) {
	lo, hi, err := c.core.TryG(src.o, i, unsafe.Sizeof(*(*T)(nil)), pe)
	e := element{lo, hi}
	return *(*T)(unsafe.Pointer(&e)), err
}

// PutNBI is Put that may read src until Quiet returns, like shmem_put_nbi. This
// implementation does not.
func PutNBI[T Elem](c *Ctx, dst Sym[T], src []T, pe int) { Put(c, dst, src, pe) }

// GetNBI is Get whose dst is filled when Quiet has returned, like shmem_get_nbi.
func GetNBI[T Elem](c *Ctx, dst []T, src Sym[T], pe int) {
	c.core.GetNBI(unsafe.Pointer(unsafe.SliceData(dst)), len(dst), src.o, unsafe.Sizeof(*(*T)(nil)), pe)
}

// IPut copies n elements of src, srcStride apart, to elements of dst at PE pe that
// lie dstStride apart, like shmem_iput. Strides are in elements, at least 1.
func IPut[T Elem](c *Ctx, dst Sym[T], dstStride int, src []T, srcStride, n, pe int) {
	IBPut(c, dst, dstStride, src, srcStride, 1, n, pe)
}

// IGet copies n elements of src at PE pe, srcStride apart, to elements of dst that
// lie dstStride apart, like shmem_iget.
func IGet[T Elem](c *Ctx, dst []T, dstStride int, src Sym[T], srcStride, n, pe int) {
	IBGet(c, dst, dstStride, src, srcStride, 1, n, pe)
}

// IBPut is IPut of n blocks of block elements each, like shmem_ibput. Strides count from the
// beginning of one block to that of the next, and are at least block.
func IBPut[T Elem](c *Ctx, dst Sym[T], dstStride int, src []T, srcStride, block, n, pe int) {
	c.core.PutStrided(dst.o, unsafe.Pointer(unsafe.SliceData(src)), len(src),
		symheap.Strided{N: n, Block: block, Remote: dstStride, Local: srcStride, Size: sizeOf[T]()}, pe)
}

// IBGet is IGet of n blocks, like shmem_ibget.
func IBGet[T Elem](c *Ctx, dst []T, dstStride int, src Sym[T], srcStride, block, n, pe int) {
	c.core.GetStrided(unsafe.Pointer(unsafe.SliceData(dst)), len(dst), src.o,
		symheap.Strided{N: n, Block: block, Remote: srcStride, Local: dstStride, Size: sizeOf[T]()}, pe)
}
