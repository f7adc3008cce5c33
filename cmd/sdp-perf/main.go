package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"
)

const (
	exitFailed      = 1
	exitBadInput    = 2
	exitInterrupted = 130
)

// badInput is an error that the user can correct on the command line.
type badInput struct{ error }

func (e badInput) Unwrap() error { return e.error }

func badInputf(format string, args ...any) error {
	return badInput{fmt.Errorf(format, args...)}
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A signal ends the program even if the clean-up hangs, if it comes a second after the first one:
	// timeout(1) sends two at once.
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	err := dispatch(ctx, os.Args[1:])
	if ctx.Err() != nil && err != nil {
		fmt.Fprintln(os.Stderr, "sdp-perf: interrupted")
		os.Exit(exitInterrupted)
	}
	if err != nil && err != errParentGone {
		complain(err)
	}
	switch bad := (badInput{}); {
	case errors.As(err, &bad):
		os.Exit(exitBadInput)
	case err != nil:
		os.Exit(exitFailed)
	}
}

func dispatch(ctx context.Context, args []string) error {
	if len(args) > 0 {
		switch args[0] {
		case servantCommand:
			return runServant(args[1:])
		case elementCommand:
			return runElement(args[1:])
		}
	}
	return runTool(ctx, args, os.Stdout)
}

// complain writes a failure in one line, whatever a lower layer puts into its message.
func complain(err error) { fmt.Fprintln(os.Stderr, "sdp-perf: "+oneLine(err)) }

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }
