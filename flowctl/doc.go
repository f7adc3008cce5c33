// Package flowctl is a part of package sdp, which programs import: the arithmetic of flow control.
// It has positions that wrap, how much a sender may still send, and when a receiver should
// return credit.
//
// It is arithmetic only. It has no clock, no goroutine, no lock, and no memory that
// a peer writes. The caller reads and writes the words.
//
// A queue of one direction has a size. The sender counts what it produced, and the
// receiver what it consumed. Both count bytes from the queue's beginning, modulo
// 2^32. From time to time the receiver sends its count to the sender. That is
// credit. At any time
//
//	credited ≤ consumed ≤ produced ≤ credited + size
//
// in the order of numbers that wrap, so size must be less than 2^31.
package flowctl
