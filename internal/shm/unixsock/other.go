//go:build !linux

package unixsock

import "errors"

// What is sent with bytes is not taken on this system, and peers are trusted.

const sendsFiles = false

type stow struct{}

func refuseFiles(int)                                 {}
func acceptFiles(int) error                           { return nil }
func prepare(int) (open bool)                         { return false }
func mayPass(int) bool                                { return false }
func peerUser(int) int                                { return -1 }
func rights([]int) []byte                             { return nil }
func readable(int) bool                               { return true }
func stopListening(int) error                         { return nil }
func empty(int) error                                 { return nil }
func (*Conn) receive([]byte, int) (int, []int, error) { return 0, nil, errors.ErrUnsupported }
func (c *closer) stow(int, int) error                 { return errors.ErrUnsupported }
func (s *stow) close()                                {}
func Discard(int, ...int)                             {}

// closeToAll does nothing: here the file has the mode that the umask leaves, for a moment.
func closeToAll(int) error { return nil }

// lockDirectory does nothing: two processes may replace a file that is stale at once.
func lockDirectory(string) (unlock func()) { return func() {} }
