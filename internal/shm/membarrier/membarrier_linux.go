//go:build linux

package membarrier

import (
	"sync"

	"golang.org/x/sys/unix"
)

// Commands of membarrier(2), from linux/membarrier.h.
const (
	globalExpedited         = 1 << 1
	registerGlobalExpedited = 1 << 2
)

// Register registers this process, so that Global reaches it. It returns true if
// both calls work. Kernels before 4.16 and some sandboxes have neither.
var Register = sync.OnceValue(func() bool {
	return call(registerGlobalExpedited) == nil && call(globalExpedited) == nil
})

// Global makes every running thread of every registered process pass a full memory
// barrier before it returns. Even if Register returned true, it may fail later, for lack
// of memory or because of a filter of system calls. Then no thread need have passed a
// barrier, and the caller must not rely on one.
func Global() error { return call(globalExpedited) }

func call(cmd uintptr) error {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, cmd, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
