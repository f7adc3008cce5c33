//go:build unix

package main

import (
	"os"
	"syscall"
)

// countersSignals are the signals that print the counters.
var countersSignals = []os.Signal{syscall.SIGUSR1}
