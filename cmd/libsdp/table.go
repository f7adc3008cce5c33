//go:build libsdp && cgo && linux

package main

import (
	"sync"
	"sync/atomic"
)

// A handle is what C has of a socket: the number of its slot in the low bits, and above them how often
// the slot was used. So a handle that was closed is mostly EBADF, even if its slot is in use again.
const (
	slotBits   = 20
	slotMask   = 1<<slotBits - 1
	maxUses    = 1<<(31-slotBits) - 1
	firstSlots = 64
)

type slots []atomic.Pointer[socket]

// sockets are the open sockets, by handle. A look-up takes no lock.
var sockets struct {
	slots atomic.Pointer[slots] // stored with mu held, as its elements are

	mu   sync.Mutex
	free []int32 // handles that are given next; guarded by mu
}

func init() { sockets.slots.Store(new(slots)) }

// open gives s a handle. It reports false if there is none left.
func open(s *socket) bool {
	t := &sockets
	t.mu.Lock()
	defer t.mu.Unlock()
	if all := *t.slots.Load(); len(t.free) == 0 {
		if len(all) > slotMask {
			return false
		}
		larger := make(slots, max(firstSlots, 2*len(all)))
		for i := range all {
			larger[i].Store(all[i].Load())
		}
		for i := len(larger) - 1; i >= len(all); i-- {
			t.free = append(t.free, int32(i)|1<<slotBits)
		}
		t.slots.Store(&larger)
	}
	s.handle = t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	(*t.slots.Load())[s.handle&slotMask].Store(s)
	return true
}

// shut takes the handle of s away, once.
func shut(s *socket) {
	t := &sockets
	t.mu.Lock()
	defer t.mu.Unlock()
	slot := s.handle & slotMask
	(*t.slots.Load())[slot].Store(nil)
	t.free = append(t.free, slot|(s.handle>>slotBits%maxUses+1)<<slotBits)
}

// find returns the socket with a handle, or nil.
func find(handle int32) *socket {
	all := *sockets.slots.Load()
	if handle < 0 || int(handle&slotMask) >= len(all) {
		return nil
	}
	s := all[handle&slotMask].Load()
	if s == nil || s.handle != handle {
		return nil
	}
	return s
}
