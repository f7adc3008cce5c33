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

// Register makes this process one that Global reaches. It is true if both work:
// kernels before 4.16 and some sandboxes have neither.
var Register = sync.OnceValue(func() bool {
	return call(registerGlobalExpedited) == nil && call(globalExpedited) == nil
})

// Global makes every running thread of every registered process pass a full memory
// barrier before it returns. Where Register is true it may still fail later, for want of
// memory or by a filter of system calls: then nobody has passed a barrier, and who
// called it must not rely on one.
func Global() error { return call(globalExpedited) }

func call(cmd uintptr) error {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, cmd, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
