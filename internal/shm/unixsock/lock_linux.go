package unixsock

import (
	"errors"
	"os"
	"syscall"
	"time"
)

// lockDirectory takes the lock of a directory. The lock leaves no file behind. Any
// process that can read /tmp can hold that directory's lock. So lockDirectory gives
// up after a second, and goes on without the lock.
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
