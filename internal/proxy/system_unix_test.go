//go:build unix

package proxy

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// shortenBacklog makes the queue of a listener as short as it can be.
func shortenBacklog(raw syscall.RawConn) error {
	var err error
	if e := raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }); e != nil {
		return e
	}
	return err
}

// A socket that was made without the lock, and does not listen yet, would appear old to the process
// that has the lock.
func TestSocketsAreMadeUnderTheLockOfTheirDirectory(t *testing.T) {
	e := newEnv(t)
	path := filepath.Join(e.dir, "s")
	made := 0
	listen := func() (net.Listener, error) {
		made++
		dir, err := os.Open(e.dir)
		if err != nil {
			t.Fatal(err)
		}
		defer dir.Close()
		if err := syscall.Flock(int(dir.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			t.Errorf("the lock is free: %v", err)
		}
		return net.Listen(networkUnix, path)
	}
	staleSocket(t, path)
	ln, err := replaceStale(path, listen)
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if made != 2 {
		t.Errorf("%d sockets were made, want one that failed and one more", made)
	}
}
