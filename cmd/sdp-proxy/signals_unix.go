//go:build unix

package main

import (
	"os"
	"syscall"
)

// countersSignals are those that print the counters.
var countersSignals = []os.Signal{syscall.SIGUSR1}
