//go:build !unix

package main

import "os"

// countersSignals is empty: this system has no signal to spare.
var countersSignals []os.Signal
