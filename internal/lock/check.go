//go:build lockcheck && (amd64 || arm64)

package lock

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
)

// Checked reports whether locks are checked, because the build tag lockcheck is
// set.
const Checked = true

// Mutex is a mutex of class C. The zero Mutex is unlocked.
type Mutex[C Class] struct {
	mu    sync.Mutex
	owner uint64 // the goroutine that has it, 0 if none has or it is lent; guarded by locks.mu
}

// held is a lock that a goroutine has.
type held struct {
	lock any
	info info
	pcs  []uintptr // where it was locked
}

// locks are the locks that goroutines hold, by goroutine.
var locks = struct {
	mu   sync.Mutex
	held map[uint64][]held // guarded by mu
}{held: map[uint64][]held{}}

// Lock locks m. It panics if a lock of the same or a higher rank is held.
func (m *Mutex[C]) Lock() {
	class, id := infoOf[C](), goroutine()
	locks.mu.Lock()
	for _, h := range locks.held[id] {
		if h.info.rank >= class.rank {
			locks.mu.Unlock()
			panic(fmt.Sprintf("lock: %s is locked while %s is held, locked at\n%s", class.name, h.info.name, h.where()))
		}
	}
	locks.mu.Unlock()
	m.mu.Lock()
	m.has(id, class)
}

// TryLock locks m if that is possible at once, and reports whether it did. It never
// waits, so it is allowed in any order.
func (m *Mutex[C]) TryLock() bool {
	if !m.mu.TryLock() {
		return false
	}
	m.has(goroutine(), infoOf[C]())
	return true
}

// Unlock unlocks m. Another goroutine may have locked it.
func (m *Mutex[C]) Unlock() {
	m.Lend()
	m.mu.Unlock()
}

// Lend says that the lock stays locked when the caller returns, and that another
// goroutine may unlock it. From then on the caller does not hold it.
func (m *Mutex[C]) Lend() {
	locks.mu.Lock()
	defer locks.mu.Unlock()
	left := slices.DeleteFunc(locks.held[m.owner], func(h held) bool { return h.lock == any(m) })
	if len(left) == 0 {
		delete(locks.held, m.owner)
	} else {
		locks.held[m.owner] = left
	}
	m.owner = 0
}

func (m *Mutex[C]) has(id uint64, class info) {
	pcs := make([]uintptr, 4)
	pcs = pcs[:runtime.Callers(4, pcs)]
	locks.mu.Lock()
	defer locks.mu.Unlock()
	m.owner = id
	locks.held[id] = append(locks.held[id], held{m, class, pcs})
}

// Device is called where something is said to a peer. It panics if the caller holds a
// lock that several peers share.
func Device() {
	id := goroutine()
	locks.mu.Lock()
	defer locks.mu.Unlock()
	for _, h := range locks.held[id] {
		if h.info.shared {
			panic(fmt.Sprintf("lock: something is said to a peer while %s is held, which peers share, locked at\n%s", h.info.name, h.where()))
		}
	}
}

func (h held) where() string {
	var b strings.Builder
	frames := runtime.CallersFrames(h.pcs)
	for more := true; more; {
		var f runtime.Frame
		f, more = frames.Next()
		fmt.Fprintf(&b, "\t%s\n\t\t%s:%d\n", f.Function, f.File, f.Line)
	}
	return b.String()
}

func infoOf[C Class]() info {
	var c C
	return c.class()
}

// goroutine returns a number that no other goroutine has while this one runs.
func goroutine() uint64
