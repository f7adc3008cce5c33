package shmem

import (
	"context"
	"fmt"
	"math/rand/v2"
)

// Waits and tests for several elements: chapter 9.10 of the specification. skip says
// which elements do not count, and may be nil; the specification calls it status. The
// Vector forms compare each element with a value of its own. Like Test, they read this
// PE's own copy. Where several elements are true, the Any forms return one of them at
// random, so that each is returned in time.

// WaitUntilAll waits until every element of s here has been OP v, one after the other,
// like shmem_wait_until_all. Errors are those of WaitUntil.
func WaitUntilAll[T AMO](ctx context.Context, s Sym[T], skip []bool, op Cmp, v T) error {
	return waitAll(ctx, looker[T]{s: s, skip: skip, op: op, v: v})
}

// WaitUntilAny waits until some element is OP v, and returns its number, like
// shmem_wait_until_any. If all are skipped, it returns -1 at once.
func WaitUntilAny[T AMO](ctx context.Context, s Sym[T], skip []bool, op Cmp, v T) (int, error) {
	return waitAny(ctx, looker[T]{s: s, skip: skip, op: op, v: v})
}

// WaitUntilSome waits until at least one element is OP v, and appends the numbers of
// all such elements to found, like shmem_wait_until_some. If all are skipped, it
// appends none and returns at once.
func WaitUntilSome[T AMO](ctx context.Context, found []int, s Sym[T], skip []bool, op Cmp, v T) ([]int, error) {
	return waitSome(ctx, found, looker[T]{s: s, skip: skip, op: op, v: v})
}

// WaitUntilAllVector is WaitUntilAll with a value for each element, like
// shmem_wait_until_all_vector.
func WaitUntilAllVector[T AMO](ctx context.Context, s Sym[T], skip []bool, op Cmp, values []T) error {
	return waitAll(ctx, vector(s, skip, op, values))
}

// WaitUntilAnyVector is WaitUntilAny with a value for each element, like
// shmem_wait_until_any_vector.
func WaitUntilAnyVector[T AMO](ctx context.Context, s Sym[T], skip []bool, op Cmp, values []T) (int, error) {
	return waitAny(ctx, vector(s, skip, op, values))
}

// WaitUntilSomeVector is WaitUntilSome with a value for each element, like
// shmem_wait_until_some_vector.
func WaitUntilSomeVector[T AMO](ctx context.Context, found []int, s Sym[T], skip []bool, op Cmp, values []T) ([]int, error) {
	return waitSome(ctx, found, vector(s, skip, op, values))
}

// TestAll reports whether every element of s here is OP v, like shmem_test_all.
func TestAll[T AMO](s Sym[T], skip []bool, op Cmp, v T) bool {
	l := looker[T]{s: s, skip: skip, op: op, v: v}
	l.check()
	return l.all()
}

// TestAny returns the number of an element that is OP v, like shmem_test_any. If
// there is none, it returns -1.
func TestAny[T AMO](s Sym[T], skip []bool, op Cmp, v T) int {
	l := looker[T]{s: s, skip: skip, op: op, v: v}
	l.check()
	return l.any()
}

// TestSome appends the numbers of all elements that are OP v to found, like
// shmem_test_some.
func TestSome[T AMO](found []int, s Sym[T], skip []bool, op Cmp, v T) []int {
	l := looker[T]{s: s, skip: skip, op: op, v: v}
	l.check()
	return l.some(found)
}

// TestAllVector is TestAll with a value for each element, like
// shmem_test_all_vector.
func TestAllVector[T AMO](s Sym[T], skip []bool, op Cmp, values []T) bool {
	l := vector(s, skip, op, values)
	l.check()
	return l.all()
}

// TestAnyVector is TestAny with a value for each element, like
// shmem_test_any_vector.
func TestAnyVector[T AMO](s Sym[T], skip []bool, op Cmp, values []T) int {
	l := vector(s, skip, op, values)
	l.check()
	return l.any()
}

// TestSomeVector is TestSome with a value for each element, like
// shmem_test_some_vector.
func TestSomeVector[T AMO](found []int, s Sym[T], skip []bool, op Cmp, values []T) []int {
	l := vector(s, skip, op, values)
	l.check()
	return l.some(found)
}

// looker compares the elements of an object here.
type looker[T AMO] struct {
	s      Sym[T]
	skip   []bool
	op     Cmp
	v      T
	values []T // instead of v, unless nil
}

func vector[T AMO](s Sym[T], skip []bool, op Cmp, values []T) looker[T] {
	if len(values) != s.n {
		panic(fmt.Sprintf("shmem: %d values for an object of %d elements", len(values), s.n))
	}
	return looker[T]{s: s, skip: skip, op: op, values: values}
}

// check panics if skip or values does not fit.
func (l *looker[T]) check() {
	if l.skip != nil && len(l.skip) != l.s.n {
		panic(fmt.Sprintf("shmem: %d elements to skip or not, of an object of %d", len(l.skip), l.s.n))
	}
}

func (l *looker[T]) counts(i int) bool { return l.skip == nil || !l.skip[i] }

func (l *looker[T]) true(i int) bool {
	v := l.v
	if l.values != nil {
		v = l.values[i]
	}
	return compare(atomicLoad(l.s.local(i)), l.op, v)
}

// none reports whether no element counts.
func (l *looker[T]) none() bool {
	for i := range l.s.n {
		if l.counts(i) {
			return false
		}
	}
	return true
}

func (l *looker[T]) all() bool {
	seen := 0
	return l.allFrom(&seen)
}

// allFrom checks the elements from *seen on. It advances *seen to the first one that
// is not as it should be, and reports whether there is none.
func (l *looker[T]) allFrom(seen *int) bool {
	for ; *seen < l.s.n; *seen++ {
		if l.counts(*seen) && !l.true(*seen) {
			return false
		}
	}
	return true
}

// any returns the number of an element that is as it should be, or -1. It begins at a
// random element, so that each of several is returned in time, whatever else the
// caller asks for in between.
func (l *looker[T]) any() int {
	if l.s.n == 0 {
		return -1
	}
	first := rand.IntN(l.s.n)
	for i := first; i < l.s.n; i++ {
		if l.counts(i) && l.true(i) {
			return i
		}
	}
	for i := range first {
		if l.counts(i) && l.true(i) {
			return i
		}
	}
	return -1
}

func (l *looker[T]) some(found []int) []int {
	for i := range l.s.n {
		if l.counts(i) && l.true(i) {
			found = append(found, i)
		}
	}
	return found
}

func waitAll[T AMO](ctx context.Context, l looker[T]) error {
	l.check()
	if l.none() {
		return nil
	}
	seen := 0
	return l.s.w.wait(ctx, func() bool { return l.allFrom(&seen) })
}

func waitAny[T AMO](ctx context.Context, l looker[T]) (int, error) {
	l.check()
	if l.none() {
		return -1, nil
	}
	found := -1
	err := l.s.w.wait(ctx, func() bool {
		found = l.any()
		return found >= 0
	})
	return found, err
}

func waitSome[T AMO](ctx context.Context, found []int, l looker[T]) ([]int, error) {
	l.check()
	if l.none() {
		return found, nil
	}
	before := len(found)
	err := l.s.w.wait(ctx, func() bool {
		found = l.some(found)
		return len(found) > before
	})
	return found, err
}
