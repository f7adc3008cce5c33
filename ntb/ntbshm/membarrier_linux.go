//go:build linux && (amd64 || arm64)

package ntbshm

import (
	"sync"

	"golang.org/x/sys/unix"
)

// Commands of membarrier(2), from linux/membarrier.h.
const (
	membarrierGlobalExpedited         = 1 << 1
	membarrierRegisterGlobalExpedited = 1 << 2
)

// registerMembarrier makes this process one that membarrier reaches. It is true
// if both that and membarrier itself work: kernels before 4.16 and some
// sandboxes have neither.
var registerMembarrier = sync.OnceValue(func() bool {
	return membarrier(membarrierRegisterGlobalExpedited) == nil &&
		membarrier(membarrierGlobalExpedited) == nil
})

// membarrier with membarrierGlobalExpedited makes every running thread of every
// registered process pass a full memory barrier before it returns.
func membarrier(cmd uintptr) error {
	if _, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, cmd, 0, 0); errno != 0 {
		return errno
	}
	return nil
}
