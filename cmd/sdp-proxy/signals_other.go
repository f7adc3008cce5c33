//go:build !unix

package main

import "os"

// countersSignals is empty, since this system has no signal for it.
var countersSignals []os.Signal
