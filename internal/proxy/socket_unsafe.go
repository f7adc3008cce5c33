//go:build linux

package proxy

import (
	"syscall"
	"unsafe"
)

// readNow and writeNow read from and write to a socket that does not block. Package syscall would tell Go's scheduler
// of each call, in case it takes long. These take a few µs, and to be told costs the scheduler a thread that looks at
// them every 20 µs.

func readNow(fd int, b []byte) (int, error)  { return call(syscall.SYS_READ, fd, b) }
func writeNow(fd int, b []byte) (int, error) { return call(syscall.SYS_WRITE, fd, b) }

func call(number uintptr, fd int, b []byte) (int, error) {
	n, _, errno := syscall.RawSyscall(number, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)))
	if errno != 0 {
		return 0, errno
	}
	return int(n), nil
}
