//go:build unix

package proxy

import "syscall"

// shortenBacklog makes the queue of a listener as short as it can be.
func shortenBacklog(raw syscall.RawConn) error {
	var err error
	if e := raw.Control(func(fd uintptr) { err = syscall.Listen(int(fd), 0) }); e != nil {
		return e
	}
	return err
}
