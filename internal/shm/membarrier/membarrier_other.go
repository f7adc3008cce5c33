//go:build !linux

package membarrier

import "errors"

// Register returns false, since this system has no such call.
func Register() bool { return false }

// Global always fails.
func Global() error { return errors.New("membarrier: not supported on this system") }
