package shmem

import (
	"context"

	"github.com/ntbnet/ntbnet/internal/job"
)

// Locks: chapter 9.12 of the specification. A lock is one symmetric word, zero at
// first. It is a queue of PEs, which get the lock in the order in which they asked.
// Waiting makes no traffic.

// Lock is a lock of all PEs, and of the goroutines of each. Like a Mutex, it does not
// belong to the goroutine that has set it: another goroutine of the PE may clear it.
type Lock struct{ word Sym[uint64] }

// LockAt returns the lock in the first element of s. The element must be zero at
// first on all PEs, and not be used for anything else.
func LockAt(s Sym[uint64]) Lock { return Lock{s.Slice(0, 1)} }

// NewLock allocates a lock. It is collective.
func NewLock(ctx context.Context, w *World) (Lock, error) {
	s, err := AllocZeroed[uint64](ctx, w, 1)
	if err != nil {
		return Lock{}, err
	}
	return LockAt(s), nil
}

// Free gives the memory of NewLock back. It is collective.
func (l Lock) Free(ctx context.Context) error { return Free(ctx, l.word) }

// Set waits until this PE has the lock and no other goroutine of it has, like
// shmem_set_lock. It fails if a PE ends. If ctx ends first, the PE may stay in the queue.
// Then some goroutine of it must call Set again, or Test until it has the lock, and then
// Clear.
func (l Lock) Set(ctx context.Context) error { return l.untyped().Set(ctx) }

// Test takes the lock if nobody has it, and reports whether it did, like shmem_test_lock.
func (l Lock) Test() (bool, error) { return l.untyped().Test() }

// Clear completes this PE's operations on the default context, and gives the lock to the
// next PE, like shmem_clear_lock. It panics if this PE does not have it. After an error
// this PE still has it.
func (l Lock) Clear(ctx context.Context) error { return l.untyped().Clear(ctx) }

// untyped returns the lock as internal/job knows it.
func (l Lock) untyped() job.Lock {
	l.word.w.check()
	return l.word.w.core.Lock(l.word.o.Off)
}
