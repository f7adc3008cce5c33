package ring

import (
	"sync/atomic"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
)

// tunnelTable finds tunnels by their numbers.
type tunnelTable struct {
	mu    lock.Mutex[lock.Tunnels]
	slots atomic.Pointer[[]*tunnel] // replaced under mu
}

func (tt *tunnelTable) init() {
	tt.slots.Store(&[]*tunnel{})
}

// add gives t a number.
func (tt *tunnelTable) add(t *tunnel) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	old := *tt.slots.Load()
	i := 0
	for i < len(old) && old[i] != nil {
		i++
	}
	slots := make([]*tunnel, max(len(old), i+1))
	copy(slots, old)
	t.index = uint32(i)
	slots[i] = t
	tt.slots.Store(&slots)
}

func (tt *tunnelTable) remove(t *tunnel) {
	tt.mu.Lock()
	defer tt.mu.Unlock()
	old := *tt.slots.Load()
	if old[t.index] != t {
		return
	}
	slots := make([]*tunnel, len(old))
	copy(slots, old)
	slots[t.index] = nil
	tt.slots.Store(&slots)
}

func (tt *tunnelTable) get(i uint32) *tunnel {
	slots := *tt.slots.Load()
	if uint64(i) >= uint64(len(slots)) {
		return nil
	}
	return slots[i]
}

func (tt *tunnelTable) all() []*tunnel {
	var all []*tunnel
	for _, t := range *tt.slots.Load() {
		if t != nil {
			all = append(all, t)
		}
	}
	return all
}

// askedBy is how many tunnels another process made, how many its whole host, and how many
// were asked for over a link.
func (tt *tunnelTable) askedBy(remote link.ID, over linkKey) (process, host, link int) {
	for _, t := range *tt.slots.Load() {
		if t == nil || t.over == nil {
			continue
		}
		if *t.over == over {
			link++
		}
		if t.remote.Host() == remote.Host() {
			host++
		}
		if t.remote == remote {
			process++
		}
	}
	return process, host, link
}

// byEpoch returns the tunnel that another process made, or nil if there is none.
func (tt *tunnelTable) byEpoch(remote link.ID, epoch uint32) *tunnel {
	for _, t := range tt.all() {
		if t.remote == remote && t.epoch == epoch && t.over != nil {
			return t
		}
	}
	return nil
}
