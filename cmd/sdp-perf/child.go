package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// The second process. Its standard input is a pipe that only the parent holds, and
// to which nothing is written. When it ends, the parent has closed it or has died,
// by whatever signal. Then the child cleans up and ends. So a killed parent leaves
// neither a process nor a socket file. The child writes once to its standard output
// where it listens.

const childCommand = "child"

const (
	childStart = 60 * time.Second // until it listens
	childStop  = 5 * time.Second  // until it ends by itself; then it is killed
)

// childReady is the message of a child that listens, or says why it does not.
type childReady struct {
	Endpoints []perf.Endpoint
	Error     string
}

// child is the second process, as the parent sees it.
type child struct {
	endpoints []perf.Endpoint // in the order of the services
	cmd       *exec.Cmd
	end       context.CancelFunc
}

// startChild starts this program again and waits until it listens. The child also
// removes dir.
func startChild(ctx context.Context, dir string, services []service) (*child, error) {
	args := []string{childCommand, dir}
	for _, s := range services {
		args = append(args, s.String())
	}
	return startListening(ctx, "the second process", args...)
}

// startListening starts this program again, with a command that writes a childReady. who is for
// errors.
func startListening(ctx context.Context, who string, args ...string) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	// The context is not ctx: an interrupt first closes the connections, then ends
	// the child.
	life, end := context.WithCancel(context.Background())
	c := &child{cmd: exec.CommandContext(life, exe, args...), end: end}
	c.cmd.Stderr = os.Stderr
	c.cmd.WaitDelay = childStop
	stdin, inErr := c.cmd.StdinPipe()
	stdout, outErr := c.cmd.StdoutPipe()
	c.cmd.Cancel = func() error { return stdin.Close() }
	if err := errors.Join(inErr, outErr); err != nil {
		end()
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		end()
		return nil, fmt.Errorf("start %s: %w", who, err)
	}
	if c.endpoints, err = readReady(ctx, stdout); err != nil {
		state := c.stop()
		if errors.Is(err, errEndedEarly) {
			err = fmt.Errorf("%w: %v", err, state)
		}
		return nil, fmt.Errorf("%s: %w", who, err)
	}
	return c, nil
}

var errEndedEarly = errors.New("ended before it listened")

// readReady reads the child's message from stdout.
func readReady(ctx context.Context, stdout io.ReadCloser) ([]perf.Endpoint, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, childStart, fmt.Errorf("does not listen after %v", childStart))
	defer cancel()
	defer context.AfterFunc(ctx, func() { stdout.Close() })()
	var ready childReady
	err := json.NewDecoder(stdout).Decode(&ready)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		return nil, errEndedEarly
	case ready.Error != "":
		return nil, errors.New(ready.Error)
	}
	return ready.Endpoints, nil
}

// stop ends the child and returns how it ended.
func (c *child) stop() *os.ProcessState {
	c.end()
	// The error says only that the child was told to end. The state says the rest.
	_ = c.cmd.Wait()
	return c.cmd.ProcessState
}

// runChild runs the second process. Its arguments are the directory of the sockets,
// which it removes, and the services.
func runChild(ctx context.Context, args []string, out io.Writer) error {
	ignoreSignals()
	if len(args) < 2 {
		return badInputf("%s is started by sdp-perf itself", childCommand)
	}
	dir := args[0]
	all := newServers()
	defer os.RemoveAll(dir)
	defer all.close()
	var ready childReady
	for _, arg := range args[1:] {
		e, err := all.serve(ctx, arg)
		if err != nil {
			ready = childReady{Error: oneLine(err)}
			break
		}
		ready.Endpoints = append(ready.Endpoints, e)
	}
	if err := json.NewEncoder(out).Encode(ready); err != nil {
		return err
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

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
