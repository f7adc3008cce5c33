package shmem

// Elem is what symmetric memory may hold: numbers. Go pointers are kept out of
// memory that other processes write.
type Elem interface {
	~int8 | ~int16 | ~int32 | ~int64 | ~int |
		~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uint | ~uintptr |
		~float32 | ~float64 | ~complex64 | ~complex128
}

// AMO is what fetching and arithmetic atomics, waits and tests take: the
// specification's standard AMO types.
type AMO interface {
	~int32 | ~int64 | ~int | ~uint32 | ~uint64 | ~uint | ~uintptr
}

// ExtAMO is what atomic fetch, set and swap take: its extended AMO types.
type ExtAMO interface {
	AMO | ~float32 | ~float64
}

// Bits is what bitwise atomics take. The specification has them for unsigned and
// fixed-width types; here they are for all that add is for.
type Bits = AMO

// Cmp is a comparison of waits and tests: is the word's value OP the given one.
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

// String is the operator.
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
