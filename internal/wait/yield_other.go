//go:build !linux

package wait

import "runtime"

// Yield lets another thread have this processor.
func Yield() { runtime.Gosched() }
