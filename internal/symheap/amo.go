package symheap

import "sync/atomic"

// Op is an atomic memory operation (AMO) on a word of 4 or 8 bytes. PEs exchange its value.
type Op uint8

// Operations.
const (
	Fetch Op = 1 + iota
	Set
	Swap
	CompareSwap
	Add
	And
	Or
	Xor
	LastOp = Xor
)

// Atomic does an operation on a word of size bytes of a heap, and returns what was there;
// after Set it returns 0. v is the operand, and cond what CompareSwap compares with.
func Atomic(base *byte, off uintptr, op Op, size uintptr, v, cond uint64) uint64 {
	if size == 4 {
		return uint64(atomic4(word4(base, off), op, uint32(v), uint32(cond)))
	}
	return atomic8(word8(base, off), op, v, cond)
}

// AtomicLoad returns a word of size bytes.
func AtomicLoad(base *byte, off, size uintptr) uint64 {
	if size == 4 {
		return uint64(atomic.LoadUint32(word4(base, off)))
	}
	return atomic.LoadUint64(word8(base, off))
}

// AtomicAdd adds to a word of size bytes, and returns what was there.
func AtomicAdd(base *byte, off, size uintptr, v uint64) uint64 {
	if size == 4 {
		return uint64(atomic.AddUint32(word4(base, off), uint32(v)) - uint32(v))
	}
	return atomic.AddUint64(word8(base, off), v) - v
}

func atomic4(p *uint32, op Op, v, cond uint32) uint32 {
	switch op {
	case Fetch:
		return atomic.LoadUint32(p)
	case Set:
		atomic.StoreUint32(p, v)
	case Swap:
		return atomic.SwapUint32(p, v)
	case Add:
		return atomic.AddUint32(p, v) - v
	case And:
		return atomic.AndUint32(p, v)
	case Or:
		return atomic.OrUint32(p, v)
	case CompareSwap, Xor:
		for {
			old, to := atomic.LoadUint32(p), v
			if op == Xor {
				to ^= old
			} else if old != cond {
				return old
			}
			if atomic.CompareAndSwapUint32(p, old, to) {
				return old
			}
		}
	}
	return 0
}

func atomic8(p *uint64, op Op, v, cond uint64) uint64 {
	switch op {
	case Fetch:
		return atomic.LoadUint64(p)
	case Set:
		atomic.StoreUint64(p, v)
	case Swap:
		return atomic.SwapUint64(p, v)
	case Add:
		return atomic.AddUint64(p, v) - v
	case And:
		return atomic.AndUint64(p, v)
	case Or:
		return atomic.OrUint64(p, v)
	case CompareSwap, Xor:
		for {
			old, to := atomic.LoadUint64(p), v
			if op == Xor {
				to ^= old
			} else if old != cond {
				return old
			}
			if atomic.CompareAndSwapUint64(p, old, to) {
				return old
			}
		}
	}
	return 0
}
