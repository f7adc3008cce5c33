package shmem

import "context"

// Signaling operations: chapter 9.8 of the specification. A put with signal is a put
// and then an atomic operation on the signal, kept in this order. So a PE that has
// seen the signal finds the data.

// SignalOp is how a signal changes: SHMEM_SIGNAL_SET or SHMEM_SIGNAL_ADD.
type SignalOp uint8

// Kinds of SignalOp.
const (
	SignalSet SignalOp = iota // the signal becomes the given value
	SignalAdd                 // the given value is added to the signal
)

// PutSignal copies src to dst at PE pe, and then changes the first element of sig
// there, like shmem_put_signal.
func PutSignal[T Elem](c *Ctx, dst Sym[T], src []T, sig Sym[uint64], v uint64, op SignalOp, pe int) {
	sig.o.CheckIndex(0)
	c.core.Check(sig.o.Space, pe) // panics before anything is stored
	Put(c, dst, src, pe)
	c.Fence()
	switch op {
	case SignalSet:
		P(c, sig, 0, v, pe)
	case SignalAdd:
		AtomicAdd(c, sig, 0, v, pe)
	default:
		panic("shmem: unknown signal operation")
	}
}

// PutSignalNBI is PutSignal that may read src until Quiet returns, like
// shmem_put_signal_nbi. This implementation does not.
func PutSignalNBI[T Elem](c *Ctx, dst Sym[T], src []T, sig Sym[uint64], v uint64, op SignalOp, pe int) {
	PutSignal(c, dst, src, sig, v, op, pe)
}

// SetSignal sets the first element of sig at PE pe, like shmem_signal_set. What the context stored there before is seen
// there before it only after a Fence.
func SetSignal(c *Ctx, sig Sym[uint64], v uint64, pe int) { P(c, sig, 0, v, pe) }

// AddSignal adds to the first element of sig at PE pe, like shmem_signal_add.
func AddSignal(c *Ctx, sig Sym[uint64], v uint64, pe int) { AtomicAdd(c, sig, 0, v, pe) }

// SignalFetch returns the first element of sig here, like shmem_signal_fetch.
func SignalFetch(sig Sym[uint64]) uint64 { return sig.o.Word(0, 8) }

// SignalWaitUntil waits until the first element of sig here is OP v, and returns it,
// like shmem_signal_wait_until. Errors are those of WaitUntil.
func SignalWaitUntil(ctx context.Context, sig Sym[uint64], op Cmp, v uint64) (uint64, error) {
	return sig.o.WaitUntil(ctx, 0, condition(op, v))
}
