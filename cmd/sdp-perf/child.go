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
	"strings"
	"syscall"
	"time"
)

// childStop is how long a child may take to end by itself. Then it is killed.
const childStop = 5 * time.Second

// child is a process that this program starts of itself. It writes JSON to its standard output. When its
// standard input ends, its parent has ended it or has died, and it ends.
type child struct {
	cmd     *exec.Cmd
	answers *json.Decoder
	end     context.CancelFunc
	stderr  strings.Builder // if it was not shown
}

// startChild starts this program again. What the child says on its standard error is shown, or kept for
// wait.
func startChild(show bool, args ...string) (*child, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	c := &child{cmd: exec.CommandContext(life, exe, args...), end: end}
	c.cmd.WaitDelay, c.cmd.Stderr = childStop, io.Writer(&c.stderr)
	if show {
		c.cmd.Stderr = os.Stderr
	}
	stdin, inErr := c.cmd.StdinPipe()
	stdout, outErr := c.cmd.StdoutPipe()
	c.cmd.Cancel = func() error { return stdin.Close() }
	if err = errors.Join(inErr, outErr); err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		end()
		return nil, fmt.Errorf("start a process: %w", err)
	}
	c.answers = json.NewDecoder(stdout)
	return c, nil
}

// wait waits until the child has ended, and returns why it failed.
func (c *child) wait() error {
	defer c.end()
	err := c.cmd.Wait()
	if said := strings.TrimPrefix(strings.TrimSpace(c.stderr.String()), "sdp-perf: "); err != nil && said != "" {
		return errors.New(said)
	}
	return err
}

// ignoreSignals is called by every process that this program starts. The terminal sends its signals to
// all of them, but the parent decides what they mean. With SIGPIPE ignored, a process that writes to a
// dead parent gets an error and cleans up.
func ignoreSignals() {
	signal.Ignore(os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
}

// errParentGone is the error of a process whose parent no longer reads its answers. It ends without a
// message.
var errParentGone = errors.New("the parent is gone")
