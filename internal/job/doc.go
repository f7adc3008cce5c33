// Package job is a PE's part in a job of OpenSHMEM, without types. It has how PEs join, map each
// other's heaps and end, and symmetric objects, teams with their collective calls, and locks.
// Objects are an offset, a number of elements and their size in bytes.
//
// It does not have types of elements, nor C's names. Package shmem is its front for Go. Puts, gets,
// atomics and waits are methods of internal/onesided, on what World.Space returns and on a Ctx.
//
//	var c onesided.Ctx                                // the default context
//	w, err := job.Open(ctx, job.Options{Ctx: &c})     // which PE of how many: the launcher says
//	off, err := w.AllocZeroed(ctx, 800)               // on every PE, at the same offset
//	o := onesided.Object{Space: w.Space(), Off: off, N: 100}
//	c.P(o, 5, 8, 7, 0, right)                         // element 5, of 8 bytes, becomes 7
//	err = w.Team().Barrier(ctx)
//	err = w.Team().Broadcast(ctx, o, o, 8, 0)
//	err = w.Close(ctx)                                // collective
//
// Mistakes of the caller panic. Their texts and those of errors begin with "shmem:", since the
// programs that see them use SHMEM.
package job
