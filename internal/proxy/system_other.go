//go:build !unix

package proxy

import "net"

// isDown cannot tell here; a reset that the other direction got may look like an
// end of file.
func isDown(net.Conn) bool { return false }

// lockDirectory does nothing: there is no such lock here.
func lockDirectory(string) (unlock func()) { return func() {} }
