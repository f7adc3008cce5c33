//go:build libsma && cgo && linux

package main

import (
	"time"
	"unsafe"

	"github.com/ntbnet/ntbnet/internal/onesided"
	"golang.org/x/sys/unix"
)

// Operations of futex(2), on words of one process.
const (
	futexWait = 0 | 128
	futexWake = 1 | 128
)

// threads sleep on a futex.
var threads = onesided.Threads{
	Sleep: func(word *uint32, atMost time.Duration) {
		t := unix.NsecToTimespec(int64(atMost))
		limit := &t
		if atMost == 0 {
			limit = nil
		}
		// Errors say that it was woken, or is to look again.
		_, _, _ = unix.Syscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWait, 0, uintptr(unsafe.Pointer(limit)), 0, 0)
	},
	Wake: func(word *uint32) {
		_, _, _ = unix.RawSyscall6(unix.SYS_FUTEX, uintptr(unsafe.Pointer(word)), futexWake, 1, 0, 0, 0)
	},
}
