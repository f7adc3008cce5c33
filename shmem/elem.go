package shmem

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
	Eq Cmp = iota
	Ne
	Gt
	Ge
	Lt
	Le
)

// String returns the operator.
func (c Cmp) String() string {
	if c > Le {
		return "unknown comparison"
	}
	return [...]string{"==", "!=", ">", ">=", "<", "<="}[c]
}

func compare[T AMO](a T, op Cmp, b T) bool {
	switch op {
	case Eq:
		return a == b
	case Ne:
		return a != b
	case Gt:
		return a > b
	case Ge:
		return a >= b
	case Lt:
		return a < b
	case Le:
		return a <= b
	}
	panic("shmem: unknown comparison")
}
