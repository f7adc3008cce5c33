// Package flowctl is the arithmetic of flow control: positions that wrap, how
// much a sender may still send, when a receiver should return credit.
//
// It is arithmetic only. It has no clock, no goroutine, no memory that a peer
// writes and no lock; the caller brings the words in and out.
//
// A queue of one direction has a size. The sender counts what it produced, the
// receiver what it consumed, both in bytes from the queue's beginning, modulo
// 2^32. The receiver sends its count to the sender now and then: that is
// credit. At any time
//
//	credited ≤ consumed ≤ produced ≤ credited + size
//
// in the order of numbers that wrap, so size must be less than 2^31.
package flowctl
