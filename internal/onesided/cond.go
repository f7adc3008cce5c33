package onesided

import (
	"context"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
)

// Cmp is a comparison of a word with a given value.
type Cmp uint8

// Comparisons.
const (
	Eq Cmp = iota
	Ne
	Gt
	Ge
	Lt
	Le
)

// Condition is what a wait or a test wants of a word.
type Condition struct {
	Size   uintptr // of the word, 4 or 8 bytes
	Signed bool
	Op     Cmp
	V      uint64 // the low Size bytes count
}

// key returns a number that is ordered as words of the condition's kind are.
func (c *Condition) key(v uint64) uint64 {
	switch {
	case c.Signed && c.Size == 4:
		return uint64(int64(int32(v))) ^ 1<<63
	case c.Signed:
		return v ^ 1<<63
	case c.Size == 4:
		return uint64(uint32(v))
	}
	return v
}

// Holds reports whether a word is as wanted.
func (c *Condition) Holds(word uint64) bool {
	a, b := c.key(word), c.key(c.V)
	switch c.Op {
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

// Test reports whether element i here is as wanted.
func (o Object) Test(i int, c Condition) bool { return c.Holds(o.Word(i, c.Size)) }

// WaitUntil waits until element i here is as wanted, and returns it. Errors are those of
// Space.Wait.
func (o Object) WaitUntil(ctx context.Context, i int, c Condition) (uint64, error) {
	v := o.Word(i, c.Size)
	if c.Holds(v) {
		return v, nil
	}
	err := o.Space.Wait(ctx, func() bool {
		v = o.Word(i, c.Size)
		return c.Holds(v)
	})
	return v, err
}

// Many compares the elements of an object here.
type Many struct {
	Object
	Condition
	skip   []bool // elements that do not count; nil if all do
	values []byte // for each element, a value instead of V; nil if V is for all
}

// NewMany returns the comparison of each element of an object here, unless skip has it, with the value of a condition. If
// values are not nil, it is with one of the element's own; there are as many values. It panics if skip does not fit.
func NewMany(o Object, c Condition, skip []bool, values []byte) Many {
	if skip != nil && len(skip) != o.N {
		panic(fmt.Sprintf("shmem: %d elements to skip or not, of an object of %d", len(skip), o.N))
	}
	return Many{o, c, skip, values}
}

func (m *Many) counts(i int) bool { return m.skip == nil || !m.skip[i] }

func (m *Many) true(i int) bool {
	c := m.Condition
	switch {
	case m.values != nil && m.Size == 4:
		c.V = uint64(binary.NativeEndian.Uint32(m.values[4*i:]))
	case m.values != nil:
		c.V = binary.NativeEndian.Uint64(m.values[8*i:])
	}
	return c.Holds(m.Word(i, m.Size))
}

// none reports whether no element counts.
func (m *Many) none() bool {
	for i := range m.N {
		if m.counts(i) {
			return false
		}
	}
	return true
}

// All reports whether all elements that count are as wanted.
func (m Many) All() bool {
	seen := 0
	return m.allFrom(&seen)
}

// allFrom checks the elements from *seen on. It advances *seen to the first one that
// is not as it should be, and reports whether there is none.
func (m *Many) allFrom(seen *int) bool {
	for ; *seen < m.N; *seen++ {
		if m.counts(*seen) && !m.true(*seen) {
			return false
		}
	}
	return true
}

// Any returns the number of an element that is as it should be, or -1. It begins at a
// random element, so that each of several is returned in time, whatever else the
// caller asks for in between.
func (m Many) Any() int {
	if m.N == 0 {
		return -1
	}
	for at, i := 0, rand.IntN(m.N); at < m.N; at, i = at+1, i+1 {
		if i == m.N {
			i = 0
		}
		if m.counts(i) && m.true(i) {
			return i
		}
	}
	return -1
}

// Some appends the numbers of all elements that are as they should be.
func (m Many) Some(found []int) []int {
	for i := range m.N {
		if m.counts(i) && m.true(i) {
			found = append(found, i)
		}
	}
	return found
}

// WaitAll waits until each element has been as wanted, one after the other.
func (m Many) WaitAll(ctx context.Context) error {
	if m.none() {
		return nil
	}
	seen := 0
	return m.Space.Wait(ctx, func() bool { return m.allFrom(&seen) })
}

// WaitAny waits until some element is as wanted, and returns its number, or -1 if none
// counts.
func (m Many) WaitAny(ctx context.Context) (int, error) {
	if m.none() {
		return -1, nil
	}
	found := -1
	err := m.Space.Wait(ctx, func() bool {
		found = m.Any()
		return found >= 0
	})
	return found, err
}

// WaitSome waits until some element is as wanted, and appends the numbers of all such
// elements. It appends none if none counts.
func (m Many) WaitSome(ctx context.Context, found []int) ([]int, error) {
	if m.none() {
		return found, nil
	}
	before := len(found)
	err := m.Space.Wait(ctx, func() bool {
		found = m.Some(found)
		return len(found) > before
	})
	return found, err
}
