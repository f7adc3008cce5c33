package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
	"github.com/ntbnet/ntbnet/sdp"
)

// servant is the second process, as this one sees it.
type servant struct {
	addresses map[string]string // by transport
	cmd       *exec.Cmd
	end       context.CancelFunc
	dir       string
}

// Times that a servant has.
const (
	servantStart = 60 * time.Second // until it listens
	servantStop  = 5 * time.Second  // until it ends by itself; then it is killed
)

// startServant starts this program again, and waits until it listens.
func startServant(ctx context.Context, transports ...string) (_ *servant, err error) {
	for _, t := range transports {
		if t == "sdp" { // checked before anything is started
			f, err := sdp.Open("")
			if err != nil {
				return nil, badInputf("%w", err)
			}
			if err := f.Close(); err != nil {
				return nil, err
			}
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "sdp-perf-")
	if err != nil {
		return nil, err
	}
	// The context is not ctx: an interrupt first ends the run, then the servant.
	life, end := context.WithCancel(context.Background())
	s := &servant{cmd: exec.CommandContext(life, exe, append([]string{servantCommand, dir}, transports...)...), end: end, dir: dir}
	s.cmd.Stderr, s.cmd.WaitDelay = os.Stderr, servantStop
	stdin, inErr := s.cmd.StdinPipe()
	stdout, outErr := s.cmd.StdoutPipe()
	s.cmd.Cancel = func() error { return stdin.Close() }
	err = errors.Join(inErr, outErr)
	if err == nil {
		err = s.cmd.Start()
	}
	if err != nil {
		end()
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, servantStart, fmt.Errorf("does not listen after %v", servantStart))
	defer cancel()
	defer context.AfterFunc(ctx, func() { stdout.Close() })()
	var ready servantReady
	err = json.NewDecoder(stdout).Decode(&ready)
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
		err = errors.New("ended before it listened")
	case ready.Error != "":
		err = errors.New(ready.Error)
	}
	if err != nil {
		return nil, fmt.Errorf("the second process: %w: %v", err, s.stop())
	}
	s.addresses = ready.Addresses
	return s, nil
}

// target returns where it listens by a transport.
func (s *servant) target(transport string) meter.Target {
	return meter.Target{Transport: transport, Address: s.addresses[transport], Timeout: connectTimeout * time.Millisecond}
}

// stop ends the servant and returns how it ended.
func (s *servant) stop() *os.ProcessState {
	s.end()
	// The error says only that it was told to end. The state says the rest.
	_ = s.cmd.Wait()
	_ = os.RemoveAll(s.dir) // if it was killed
	return s.cmd.ProcessState
}
