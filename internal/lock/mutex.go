//go:build !(lockcheck && (amd64 || arm64))

package lock

import (
	"sync"

	"github.com/ntbnet/ntbnet/internal/virtual"
)

// Checked reports whether locks are checked, because the build tag lockcheck is
// set.
const Checked = false

// Mutex is a mutex of class C. The zero Mutex is unlocked.
type Mutex[C Class] struct{ sync.Mutex }

// Lock locks m.
func (m *Mutex[C]) Lock() {
	if virtual.Wait == nil {
		m.Mutex.Lock()
		return
	}
	for !m.Mutex.TryLock() {
		virtual.Wait()
	}
}

// Lend says that the lock stays locked when the caller returns, and that another
// goroutine may unlock it. From then on the caller does not hold it.
func (m *Mutex[C]) Lend() {}

// Device is called where something is said to a peer.
func Device() {}
