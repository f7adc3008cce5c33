package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

// ignoreSignals is called by every process that this program starts. The terminal
// sends its signals to all of them, but the parent decides what they mean. With
// SIGPIPE ignored, a process that writes to a dead parent gets an error and cleans
// up.
func ignoreSignals() {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
}

// errParentGone is the error of a process whose parent no longer reads its answers.
// It ends without a message.
var errParentGone = errors.New("the parent is gone")

// toParent is the standard output of a process that this program starts.
type toParent struct{ io.Writer }

func (w toParent) Write(b []byte) (int, error) {
	n, err := w.Writer.Write(b)
	if err != nil {
		err = fmt.Errorf("%w: %w", errParentGone, err)
	}
	return n, err
}
