//go:build lockcheck && (amd64 || arm64)

package lock

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// panics fails unless f panics with a text that begins with text.
func panics(t *testing.T, text string, f func()) {
	t.Helper()
	defer func() {
		t.Helper()
		got := fmt.Sprint(recover())
		require.True(t, strings.HasPrefix(got, text), got)
	}()
	f()
}

func none(t *testing.T) {
	t.Helper()
	require.Empty(t, locks.held[goroutine()])
}

func TestLocksInAnotherOrderPanic(t *testing.T) {
	var table Mutex[Listen]
	var pool, other Mutex[Pool]
	table.Lock()
	pool.Lock()
	panics(t, "lock: bounce.Pool is locked while bounce.Pool is held", other.Lock)
	pool.Unlock()
	table.Unlock()
	pool.Lock()
	panics(t, "lock: listen.Table is locked while bounce.Pool is held", table.Lock)
	require.True(t, table.TryLock(), "it does not wait, so any order is right")
	require.False(t, table.TryLock())
	pool.Unlock()
	table.Unlock()
	none(t)
}

func TestADeviceCallUnderASharedLockPanics(t *testing.T) {
	var table Mutex[Listen]
	var pool Mutex[Pool]
	Device()
	pool.Lock()
	Device() // a lock of that peer alone
	pool.Unlock()
	table.Lock()
	panics(t, "lock: something is said to a peer while listen.Table is held", Device)
	done := make(chan struct{})
	go func() { defer close(done); Device() }() // another goroutine may call it
	<-done
	table.Unlock()
	Device()
	none(t)
}

func TestALentLockIsUnlockedByAnother(t *testing.T) {
	var read Mutex[Read]
	var table Mutex[Listen]
	var users Mutex[Users]
	read.Lock()
	panics(t, "lock: sdp.Fabric is locked while bounce.reader is held", users.Lock)
	read.Lend()
	users.Lock()
	users.Unlock()
	done := make(chan struct{})
	go func() { defer close(done); table.Lock(); read.Unlock(); table.Unlock() }()
	<-done
	read.Lock()
	read.Unlock()
	none(t)
}

func TestAMutexIsALockerOfCond(t *testing.T) {
	var mu Mutex[DMA]
	cond := sync.Cond{L: &mu}
	ready := false
	go func() {
		mu.Lock()
		ready = true
		mu.Unlock()
		cond.Broadcast()
	}()
	mu.Lock()
	for !ready {
		cond.Wait()
	}
	mu.Unlock()
	none(t)
}
