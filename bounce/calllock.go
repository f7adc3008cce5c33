package bounce

import "github.com/ntbnet/ntbnet/internal/lock"

// callLock is the lock of a half. A call holds it, also while it waits. Between calls the half is visited: for its
// counters, and by the link's goroutine. A visit does not wait.
type callLock[C lock.Class] struct {
	lock.Mutex[C]
	visits lock.Mutex[lock.Visit] // held by a visit too, and while tryLock keeps visits away
}

// visit locks l for a moment, until leave, and reports whether it did. It does not if a call is under way, or another
// visit.
func (l *callLock[C]) visit() bool {
	if !l.visits.TryLock() {
		return false
	}
	if !l.TryLock() {
		l.visits.Unlock()
		return false
	}
	return true
}

// leave ends a visit.
func (l *callLock[C]) leave() {
	l.Unlock()
	l.visits.Unlock()
}

// tryLock locks l unless a call holds it, and reports whether it did. It waits for a visit.
func (l *callLock[C]) tryLock() bool {
	if l.TryLock() {
		return true
	}
	l.visits.Lock()
	defer l.visits.Unlock()
	return l.TryLock()
}
