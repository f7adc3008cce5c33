package shmem

import (
	"context"
	"fmt"

	"github.com/ntbnet/ntbnet/internal/onesided"
)

// Waits and tests: chapter 9.10 of the specification.

// WaitUntil waits until element i of s here is OP v, like shmem_wait_until. Another
// PE makes it so by an atomic operation, P, a put of one element, or a signal. ctx
// ends it early. It fails if a PE of the job ends.
func WaitUntil[T AMO](ctx context.Context, s Sym[T], i int, op Cmp, v T) error {
	_, err := s.o.WaitUntil(ctx, i, condition(op, v))
	return err
}

// Test reports whether element i of s here is OP v, like shmem_test.
func Test[T AMO](s Sym[T], i int, op Cmp, v T) bool { return s.o.Test(i, condition(op, v)) }

// Waits and tests for several elements. skip says
// which elements do not count, and may be nil; the specification calls it status. The
// Vector forms compare each element with a value of its own. Like Test, they read this
// PE's own copy. Where several elements are true, the Any forms return one of them at
// random, so that each is returned in time.

// WaitUntilAll waits until every element of s here has been OP v, one after the other,
// like shmem_wait_until_all. Errors are those of WaitUntil.
func WaitUntilAll[T AMO](ctx context.Context, s Sym[T], skip []bool, op Cmp, v T) error {
	return many(s, skip, op, v).WaitAll(ctx)
}

// WaitUntilAny waits until some element is OP v, and returns its number, like
// shmem_wait_until_any. If all are skipped, it returns -1 at once.
func WaitUntilAny[T AMO](ctx context.Context, s Sym[T], skip []bool, op Cmp, v T) (int, error) {
	return many(s, skip, op, v).WaitAny(ctx)
}

// WaitUntilSome waits until at least one element is OP v, and appends the numbers of
// all such elements to found, like shmem_wait_until_some. If all are skipped, it
// appends none and returns at once.
func WaitUntilSome[T AMO](ctx context.Context, found []int, s Sym[T], skip []bool, op Cmp, v T) ([]int, error) {
	return many(s, skip, op, v).WaitSome(ctx, found)
}

// WaitUntilAllVector is WaitUntilAll with a value for each element, like
// shmem_wait_until_all_vector.
func WaitUntilAllVector[T AMO](ctx context.Context, s Sym[T], skip []bool, op Cmp, values []T) error {
	return vector(s, skip, op, values).WaitAll(ctx)
}

// WaitUntilAnyVector is WaitUntilAny with a value for each element, like
// shmem_wait_until_any_vector.
func WaitUntilAnyVector[T AMO](ctx context.Context, s Sym[T], skip []bool, op Cmp, values []T) (int, error) {
	return vector(s, skip, op, values).WaitAny(ctx)
}

// WaitUntilSomeVector is WaitUntilSome with a value for each element, like
// shmem_wait_until_some_vector.
func WaitUntilSomeVector[T AMO](ctx context.Context, found []int, s Sym[T], skip []bool, op Cmp, values []T) ([]int, error) {
	return vector(s, skip, op, values).WaitSome(ctx, found)
}

// TestAll reports whether every element of s here is OP v, like shmem_test_all.
func TestAll[T AMO](s Sym[T], skip []bool, op Cmp, v T) bool {
	return many(s, skip, op, v).All()
}

// TestAny returns the number of an element that is OP v, like shmem_test_any. If
// there is none, it returns -1.
func TestAny[T AMO](s Sym[T], skip []bool, op Cmp, v T) int {
	return many(s, skip, op, v).Any()
}

// TestSome appends the numbers of all elements that are OP v to found, like
// shmem_test_some.
func TestSome[T AMO](found []int, s Sym[T], skip []bool, op Cmp, v T) []int {
	return many(s, skip, op, v).Some(found)
}

// TestAllVector is TestAll with a value for each element, like
// shmem_test_all_vector.
func TestAllVector[T AMO](s Sym[T], skip []bool, op Cmp, values []T) bool {
	return vector(s, skip, op, values).All()
}

// TestAnyVector is TestAny with a value for each element, like
// shmem_test_any_vector.
func TestAnyVector[T AMO](s Sym[T], skip []bool, op Cmp, values []T) int {
	return vector(s, skip, op, values).Any()
}

// TestSomeVector is TestSome with a value for each element, like
// shmem_test_some_vector.
func TestSomeVector[T AMO](found []int, s Sym[T], skip []bool, op Cmp, values []T) []int {
	return vector(s, skip, op, values).Some(found)
}

// many is a condition for all elements of s that are not skipped.
func many[T AMO](s Sym[T], skip []bool, op Cmp, v T) onesided.Many {
	return onesided.NewMany(s.o, condition(op, v), skip, nil)
}

// vector is many with a value for each element.
func vector[T AMO](s Sym[T], skip []bool, op Cmp, values []T) onesided.Many {
	if len(values) != s.o.N {
		panic(fmt.Sprintf("shmem: %d values for an object of %d elements", len(values), s.o.N))
	}
	return onesided.NewMany(s.o, condition(op, T(0)), skip, bytesOf(values))
}
