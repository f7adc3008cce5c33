//go:build !linux

package membarrier

import "errors"

// Register is false: this system has nothing of the kind.
func Register() bool { return false }

// Global fails.
func Global() error { return errors.New("membarrier: not supported on this system") }
