package onesided

import (
	"fmt"

	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Object is a symmetric object: N elements from an offset on, in the heap of each PE. The
// size of an element is an argument of each call. The zero Object has no elements and
// belongs to no Space.
type Object struct {
	Space *Space
	Off   uintptr // bytes from the beginning of the heap
	N     int     // elements
}

// at returns the offset of element i. It is short enough to be inlined. A call would store
// to the stack, and the locked instruction of an atomic operation waits for all stores
// before it.
func (o *Object) at(i int, size uintptr) uintptr {
	if uint(i) >= uint(o.N) {
		badIndex(i, o.N)
	}
	return o.Off + uintptr(i)*size
}

// CheckIndex panics unless element i is there.
func (o Object) CheckIndex(i int) { o.at(i, 0) }

// Word returns element i of this PE's own copy, of 4 or 8 bytes.
func (o Object) Word(i int, size uintptr) uint64 {
	off := o.at(i, size)
	o.Space.Check()
	return symheap.AtomicLoad(o.Space.heap.Base, off, size)
}

// Slice returns elements i to j-1. The caller has checked them.
func (o Object) Slice(i, j int, size uintptr) Object {
	return Object{o.Space, o.Off + uintptr(i)*size, j - i}
}

// Local returns the memory of this PE's own copy.
func (o Object) Local(size uintptr) []byte {
	if o.N == 0 {
		return nil
	}
	o.Space.Check()
	return symheap.Bytes(o.Space.heap.Base, o.Off, uintptr(o.N)*size)
}

// Reached returns the memory of the copy of a PE, or nil if that is not mapped here.
func (o Object) Reached(p *Peer, size uintptr) []byte {
	base := p.base.Load()
	if o.N == 0 || base == nil {
		return nil
	}
	return symheap.Bytes(base, o.Off, uintptr(o.N)*size)
}

// These functions are separate, and not inlined, so that their callers can be.

//go:noinline
func badIndex(i, n int) { panic(fmt.Sprintf("shmem: index %d of an object of %d elements", i, n)) }

// BadSpace panics because a World is closed, or an object belongs to none.
//
//go:noinline
func BadSpace() { panic("shmem: use of a closed World, or of a zero Sym") }

// BadWorld panics because an object belongs to another Space than its context or team.
//
//go:noinline
func BadWorld() { panic("shmem: object of another World") }

// BadRoom panics because n elements do not fit.
//
//go:noinline
func BadRoom(n, have int) {
	panic(fmt.Sprintf("shmem: %d elements do not fit into an object of %d", n, have))
}

// BadPE panics because there is no such PE.
//
//go:noinline
func BadPE(pe, n int) { panic(fmt.Sprintf("shmem: PE %d of %d", pe, n)) }
