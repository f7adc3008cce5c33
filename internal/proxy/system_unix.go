//go:build unix

package proxy

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// isDown tells if a TCP connection is closed in the kernel: by a reset, or
// because both sides have ended it.
func isDown(c net.Conn) bool {
	t, ok := c.(*net.TCPConn)
	if !ok {
		return false
	}
	raw, err := t.SyscallConn()
	if err != nil {
		return true
	}
	down := false
	err = raw.Control(func(fd uintptr) {
		_, err := syscall.Getpeername(int(fd))
		down = errors.Is(err, syscall.ENOTCONN)
	})
	return down || err != nil // err: abort is closing it just now
}

// lockDirectory takes the lock of a directory, which leaves no file behind. It
// gives up after a second, because anyone who can read /tmp can hold its lock;
// then it goes on without.
func lockDirectory(dir string) (unlock func()) {
	f, err := os.Open(dir)
	if err != nil {
		return func() {}
	}
	for range 100 {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	return func() { f.Close() } // closing unlocks
}
