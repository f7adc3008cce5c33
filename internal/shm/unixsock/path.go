package unixsock

import "fmt"

// maxPath is the longest path that fits into the 108 bytes of a sockaddr_un together with its final
// zero.
const maxPath = 107

// CheckPath returns an error that names the limit if a path is too long for a Unix socket. The kernel's
// own, and that of package net, is "invalid argument".
func CheckPath(path string) error {
	if len(path) > maxPath {
		return fmt.Errorf("the path has %d bytes, a Unix socket takes at most %d; use a shorter or a relative one", len(path), maxPath)
	}
	return nil
}
