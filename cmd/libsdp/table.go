//go:build libsdp && cgo && linux

package main

import (
	"iter"
	"sync"
	"sync/atomic"
)

// A handle is what C has of a socket: the number of its slot in the low bits, and above them how often
// the slot was used. So a handle that was closed is mostly EBADF, even if its slot is in use again.
const (
	slotBits  = 20
	chunkBits = 10
	maxUses   = 1<<(31-slotBits) - 1
)

type chunk [1 << chunkBits]atomic.Pointer[socket]

// sockets are the open sockets, by handle. A look-up takes no lock.
var sockets struct {
	chunks [1 << (slotBits - chunkBits)]atomic.Pointer[chunk]

	mu sync.Mutex
	// mu guards the following.
	free []int32 // handles that are given next
	next int32   // the first slot that was never used
}

// open gives s a handle. It reports false if there is none left.
func open(s *socket) bool {
	t := &sockets
	t.mu.Lock()
	defer t.mu.Unlock()
	switch n := len(t.free); {
	case n > 0:
		s.handle = t.free[n-1]
		t.free = t.free[:n-1]
	case t.next < 1<<slotBits:
		s.handle = t.next | 1<<slotBits
		t.next++
	default:
		return false
	}
	c := &t.chunks[s.slot()>>chunkBits]
	if c.Load() == nil {
		c.Store(new(chunk))
	}
	c.Load()[s.slot()&(1<<chunkBits-1)].Store(s)
	return true
}

// shut takes the handle of s away. It reports false if another call has.
func shut(s *socket) bool {
	t := &sockets
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := s.slot()
	if !t.chunks[slot>>chunkBits].Load()[slot&(1<<chunkBits-1)].CompareAndSwap(s, nil) {
		return false
	}
	t.free = append(t.free, slot|(s.handle>>slotBits%maxUses+1)<<slotBits)
	return true
}

func (s *socket) slot() int32 { return s.handle & (1<<slotBits - 1) }

// find returns the socket with a handle, or nil.
func find(handle int32) *socket {
	if handle < 0 {
		return nil
	}
	slot := handle & (1<<slotBits - 1)
	c := sockets.chunks[slot>>chunkBits].Load()
	if c == nil {
		return nil
	}
	s := c[slot&(1<<chunkBits-1)].Load()
	if s == nil || s.handle != handle {
		return nil
	}
	return s
}

// everySocket yields the open sockets.
func everySocket() iter.Seq[*socket] {
	return func(yield func(*socket) bool) {
		for i := range sockets.chunks {
			c := sockets.chunks[i].Load()
			if c == nil {
				return // slots are taken in order
			}
			for j := range c {
				if s := c[j].Load(); s != nil && !yield(s) {
					return
				}
			}
		}
	}
}
