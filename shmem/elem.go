package shmem

import "github.com/ntbnet/ntbnet/internal/onesided"

// Elem is what symmetric memory may hold: numbers. Go pointers must not lie in
// memory that other processes write.
type Elem interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int |
		~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint | ~uintptr |
		~float32 | ~float64 | ~complex64 | ~complex128
}

// AMO is the set of types for fetching and arithmetic atomics, waits and tests.
// These are the specification's standard AMO types.
type AMO interface {
	~int32 | ~int64 | ~int | ~uint32 | ~uint64 | ~uint | ~uintptr
}

// ExtAMO is the set of types for atomic fetch, set and swap. These are the
// specification's extended AMO types.
type ExtAMO interface {
	AMO | ~float32 | ~float64
}

// Bits is the set of types for bitwise atomics. The specification has them for
// unsigned and fixed-width types. Here they take all types that AtomicAdd takes.
type Bits = AMO

// Cmp is a comparison of waits and tests, of a word's value with a given one.
type Cmp uint8

// Comparisons, as SHMEM_CMP_EQ and so on.
const (
	Eq = Cmp(onesided.Eq)
	Ne = Cmp(onesided.Ne)
	Gt = Cmp(onesided.Gt)
	Ge = Cmp(onesided.Ge)
	Lt = Cmp(onesided.Lt)
	Le = Cmp(onesided.Le)
)

// String returns the operator.
func (c Cmp) String() string {
	if c > Le {
		return "unknown comparison"
	}
	return [...]string{"==", "!=", ">", ">=", "<", "<="}[c]
}

// condition is what a wait or a test wants of an element.
func condition[T AMO](op Cmp, v T) onesided.Condition {
	return onesided.Condition{Size: sizeOf[T](), Signed: ^T(0) < 0, Op: onesided.Cmp(op), V: uint64(v)}
}
