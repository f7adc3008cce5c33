// Package onesided does one-sided operations on the symmetric heaps of PEs: puts, gets, atomics,
// fences and quiet, and waits for words of this PE's own heap. Objects are untyped: an offset, a
// number of elements and their size in bytes.
//
// A PE whose heap is mapped is reached by loads and stores, see internal/symheap. Any other PE is
// reached by requests, see internal/activemsg. The package does not know how PEs find each other;
// that is internal/job. The functions of package shmem, with type parameters, are its front.
//
//	space := onesided.New(me, n, heap, fence, membarrier.Global, opError)
//	var c onesided.Ctx
//	c.Init(space, space.Peers())
//	o := onesided.Object{Space: space, Off: off, N: 100}
//	c.P(o, 5, 8, 7, 0, pe)                             // element 5, of 8 bytes, becomes 7
//	old := c.FetchAdd(o, 0, 8, 1, pe)
//	err := c.Quiet()
//	v, err := o.WaitUntil(ctx, 5, onesided.Condition{Size: 8, Op: onesided.Eq, V: 7})
//
// Mistakes of the caller panic. The first failure of the fabric stays with its context.
package onesided
