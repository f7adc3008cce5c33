package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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

// children are the commands that only the program itself starts.
var children = map[string]func(ctx context.Context, args []string, out io.Writer) error{
	servantCommand: runServant,
	elementCommand: runElement,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A signal ends the program even if the clean-up hangs, if it comes a second after the first one:
	// timeout(1) sends two at once.
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	err := dispatch(ctx, os.Args[1:], os.Stdout)
	if ctx.Err() != nil && err != nil {
		fmt.Fprintln(os.Stderr, "sdp-perf: interrupted")
		os.Exit(exitInterrupted)
	}
	if err != nil && !errors.Is(err, errParentGone) {
		fmt.Fprintln(os.Stderr, "sdp-perf: "+oneLine(err))
	}
	os.Exit(exitStatus(err))
}

func dispatch(ctx context.Context, args []string, out io.Writer) error {
	if len(args) > 0 {
		if err := moved(args[0]); err != nil {
			return err
		}
		if run, ok := children[args[0]]; ok {
			return run(ctx, args[1:], toParent{out})
		}
	}
	return runTool(ctx, args, out)
}

func exitStatus(err error) int {
	var bad badInput
	switch {
	case err == nil:
		return 0
	case errors.As(err, &bad):
		return exitBadInput
	}
	return exitFailed
}

// oneLine makes one line of a failure, whatever a lower layer puts into its
// message.
func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
