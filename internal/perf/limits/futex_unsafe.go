//go:build linux

package limits

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// Operations of futex(2), for memory that several processes map.
const (
	opWait = 0
	opWake = 1
)

// futexWait sleeps until futexWake is called for the word at off, if its value is whileIs. It
// may return for no reason.
func futexWait(mem []byte, off int, whileIs uint32) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&mem[off])), opWait, uintptr(whileIs), 0, 0, 0)
}

// futexWake wakes the process that sleeps at the word at off, if one does.
func futexWake(mem []byte, off int) {
	unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(&mem[off])), opWake, 1, 0, 0, 0)
}
