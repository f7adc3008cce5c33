package job

import "math/bits"

// cpuSet is a set of processors, as bits. A set that another PE sends may have any
// length.
type cpuSet []uint64

func (s *cpuSet) add(other []uint64) {
	for len(*s) < len(other) {
		*s = append(*s, 0)
	}
	for i, w := range other {
		(*s)[i] |= w
	}
}

func (s cpuSet) meets(other []uint64) bool {
	for i := range min(len(s), len(other)) {
		if s[i]&other[i] != 0 {
			return true
		}
	}
	return false
}

func (s cpuSet) count() (n int) {
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}
