//go:build unix

package main

import (
	"os"
	"syscall"
)

func init() { countersSignals = []os.Signal{syscall.SIGUSR1} }
