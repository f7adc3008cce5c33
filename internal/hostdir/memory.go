package hostdir

import (
	"cmp"
	"slices"

	"github.com/ntbnet/ntbnet/internal/lock"
)

// Memory is a host without a directory, whose processes are all within this one: their claims are locks in memory. The
// zero value has no processes.
type Memory struct {
	mu  lock.Mutex[lock.Bytes]
	all []memoryLock // by byte; guarded by mu
}

// memoryLock is a byte that a process has locked.
type memoryLock struct {
	at int64
	by *memoryLocks
}

// Join returns the claims of another process of the host, with its number. It owns the host's bridges if owner is set;
// if another one does, the error wraps EADDRINUSE.
func (m *Memory) Join(owner bool) (c *Claims, process int, err error) {
	c = newClaims(&memoryLocks{m})
	if owner {
		process, err = c.claimOwner()
	} else {
		process, err = c.claimProcess()
	}
	return c, process, err
}

// memoryLocks are the byteLocks of a process.
type memoryLocks struct{ of *Memory }

func (l *memoryLocks) lock(at int64) (bool, error) {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	i, taken := l.of.search(at)
	if !taken {
		l.of.all = slices.Insert(l.of.all, i, memoryLock{at, l})
	}
	return l.of.all[i].by == l, nil
}

func (l *memoryLocks) unlock(start, n int64) error {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	l.of.all = slices.DeleteFunc(l.of.all, func(k memoryLock) bool {
		return k.by == l && k.at >= start && (n == 0 || k.at-start < n)
	})
	return nil
}

func (l *memoryLocks) find(start, n int64) (at int64, ok bool, err error) {
	l.of.mu.Lock()
	defer l.of.mu.Unlock()
	i, _ := l.of.search(start)
	if i == len(l.of.all) || l.of.all[i].at-start >= n {
		return 0, false, nil
	}
	return l.of.all[i].at, true, nil
}

// search returns where a byte is in all, or would be. The caller holds mu.
func (m *Memory) search(at int64) (int, bool) {
	return slices.BinarySearchFunc(m.all, at, func(k memoryLock, at int64) int { return cmp.Compare(k.at, at) })
}
