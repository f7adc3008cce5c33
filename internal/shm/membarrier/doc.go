// Package membarrier makes the threads of other processes pass a memory barrier.
//
// A waiter that is about to sleep calls it after it has announced that, and before
// it checks once more. Then the goroutines that work need no barrier between their
// store and their load. The rarer side pays for both.
package membarrier
