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

// command is a command, chosen by the first argument.
type command struct {
	name     string
	synopsis string // follows the program's name in the help
	summary  string
	hidden   bool // only the program itself starts it
	run      func(ctx context.Context, args []string, out io.Writer) error
}

// commands returns all commands.
func commands() []command {
	return []command{
		{name: "limits", synopsis: "limits [flags]", summary: "measure what the machine allows two processes, and chains of them", run: runLimits},
		{name: "crossover", synopsis: "crossover [flags]", summary: "measure what payload costs by CPU stores and by DMA", run: runCrossover},
		{name: "shmem", synopsis: "shmem [flags]", summary: "measure operations of package shmem", run: runShmem},
		{name: "ring", synopsis: "ring [flags]", summary: "measure rings and chains of node processes", run: runRing},
		{name: nodeCommand, hidden: true, run: runRingNode},
		{name: relayCommand, hidden: true, run: runRelay},
		{name: clientCommand, hidden: true, run: runChainClient},
		{name: bareCommand, hidden: true, run: runBare},
		{name: helperCommand, hidden: true, run: runHelper},
		{name: servantCommand, hidden: true, run: runServant},
		{name: childCommand, hidden: true, run: runChild},
		{name: peCommand, hidden: true, run: runPE},
	}
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
		for _, c := range commands() {
			if c.name != args[0] {
				continue
			}
			if c.hidden {
				out = toParent{out}
			}
			return c.run(ctx, args[1:], out)
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
