//go:build !unix

package proxy

import (
	"net"
	"os"
	"syscall"
)

// isDown cannot tell here; a reset that the other direction got may look like an
// end of file.
func isDown(net.Conn) bool { return false }

// lockDirectory does nothing: there is no such lock here.
func lockDirectory(string) (unlock func()) { return func() {} }

// rawSocket is nil: here nobody is told whether something has arrived.
func rawSocket(net.Conn) syscall.RawConn { return nil }

// tryOnce is never called here.
func (r *reader) tryOnce(uintptr) (done bool) { return true }

// fileID is empty: here files have no numbers that are known.
func fileID(os.FileInfo) string { return "" }

// networkNamespace is empty: there is one.
func networkNamespace() string { return "" }
