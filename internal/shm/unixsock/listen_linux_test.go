package unixsock

import (
	"errors"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// staleSocket leaves the file of a listener that no longer exists.
func staleSocket(t *testing.T, path string) {
	t.Helper()
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Net: "unix", Name: path})
	if err != nil {
		t.Fatal(err)
	}
	ln.SetUnlinkOnClose(false)
	ln.Close()
	if _, err := os.Lstat(path); err != nil {
		t.Fatal(err)
	}
}

// A socket that was made without the lock, and does not listen yet, would appear old to the process
// that has the lock.
func TestSocketsAreMadeUnderTheLockOfTheirDirectory(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	made := 0
	listen := func() (*Listener, error) {
		made++
		d, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		if err := syscall.Flock(int(d.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); !errors.Is(err, syscall.EWOULDBLOCK) {
			t.Errorf("the lock is free: %v", err)
		}
		return Bind(t.Context(), path)
	}
	staleSocket(t, path)
	ln, err := replaceStale(t.Context(), path, listen)
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	if made != 2 {
		t.Errorf("%d sockets were made, want one that failed and one more", made)
	}
}
