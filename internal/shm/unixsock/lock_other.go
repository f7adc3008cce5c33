//go:build !unix

package unixsock

// lockDirectory does nothing, since this system has no such lock.
func lockDirectory(string) (unlock func()) { return func() {} }
