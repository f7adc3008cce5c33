package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"sync/atomic"
)

// loadCommand is a process that only computes, until its standard input ends. It
// writes a line when it begins.
const loadCommand = "load"

// startLoad keeps every processor busy until stop is called or ctx ends.
func startLoad(ctx context.Context) (stop func() error, err error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var ends []func() error
	stop = func() (err error) {
		for _, end := range ends {
			err = errors.Join(err, end())
		}
		return err
	}
	for range runtime.NumCPU() {
		end, err := startOneLoad(ctx, exe)
		if err != nil {
			return nil, errors.Join(err, stop())
		}
		ends = append(ends, end)
	}
	return stop, nil
}

func startOneLoad(ctx context.Context, exe string) (end func() error, err error) {
	cmd := exec.CommandContext(ctx, exe, loadCommand)
	cmd.Stderr = os.Stderr
	stdin, inErr := cmd.StdinPipe()
	stdout, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a busy process: %w", err)
	}
	_, err = bufio.NewReader(stdout).ReadString('\n')
	end = func() error {
		stdin.Close()
		if err := cmd.Wait(); err != nil && ctx.Err() == nil {
			return fmt.Errorf("a busy process: %w", err)
		}
		return nil
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("a busy process: %w", err), end())
	}
	return end, nil
}

// computed makes the work of a busy process visible, so that it is not optimized
// away.
var computed atomic.Uint64

// runLoad runs one such process.
func runLoad(_ context.Context, args []string, out io.Writer) error {
	ignoreSignals()
	if len(args) != 0 {
		return badInputf("%s is started by sdp-perf itself", loadCommand)
	}
	if _, err := fmt.Fprintln(out, "busy"); err != nil {
		return err
	}
	go func() {
		for {
			computed.Add(1)
		}
	}()
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}
