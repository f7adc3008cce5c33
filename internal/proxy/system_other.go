//go:build !unix

package proxy

import (
	"math"
	"net"
	"os"
	"syscall"
)

// isDown returns false, since this system does not report it. A reset that the
// other direction got may appear as an end of file.
func isDown(net.Conn) bool { return false }

// rawSocket returns nil, since this system does not report whether data has
// arrived.
func rawSocket(net.Conn) syscall.RawConn { return nil }

// tryOnce is never called here.
func (r *reader) tryOnce(uintptr) (done bool) { return true }

// tryOnce is never called here.
func (w *writer) tryOnce(uintptr) (done bool) { return true }

// descriptorLimit returns a number that is not reached.
func descriptorLimit() int { return math.MaxInt32 }

// isListener returns false: no sockets are passed here.
func isListener(*os.File) bool { return false }
