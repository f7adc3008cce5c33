// Package membarrier makes the threads of other processes pass a memory barrier.
//
// Whoever is about to sleep calls it between telling so and looking once more.
// Then those who work need no barrier between their store and their look: the
// rare side pays for both.
package membarrier
