package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
	"github.com/ntbnet/ntbnet/sdp"
)

// servantCommand is the server of a run on this machine. Its arguments are a directory, which it
// removes, and transports. It writes a servantReady.
const servantCommand = "servant"

// servantReady has where a servant listens, by transport.
type servantReady struct {
	Addresses map[string]string
	Error     string
}

func runServant(args []string) error {
	ignoreSignals()
	if len(args) < 2 {
		return badInputf("%s is started by sdp-perf itself", servantCommand)
	}
	defer os.RemoveAll(args[0])
	ctx, end := context.WithCancel(context.Background())
	var work sync.WaitGroup
	defer work.Wait()
	defer end()
	ready := servantReady{Addresses: map[string]string{"sdp": "localhost:0", "tcp": "127.0.0.1:0", "unix": filepath.Join(args[0], "socket")}}
	for _, transport := range args[1:] {
		address := ready.Addresses[transport]
		ln, err := meter.Listen(ctx, transport, "", address)
		if err != nil {
			ready.Error = oneLine(err)
			break
		}
		if _, port, err := net.SplitHostPort(ln.Addr().String()); err == nil {
			ready.Addresses[transport] = strings.TrimSuffix(address, "0") + port
		}
		work.Go(func() {
			if err := (&meter.Server{Memory: math.MaxInt}).Serve(ctx, ln); err != nil {
				complain(err)
			}
		})
	}
	if json.NewEncoder(os.Stdout).Encode(ready) != nil {
		return errParentGone
	}
	_, err := io.Copy(io.Discard, os.Stdin)
	return err
}

// servant is a servant as this process sees it.
type servant struct {
	*child
	servantReady
	dir string
}

// startServant starts one and waits until it listens.
func startServant(ctx context.Context, transports ...string) (*servant, error) {
	if slices.Contains(transports, "sdp") { // checked before anything is started
		f, err := sdp.Open("")
		if err != nil {
			return nil, badInput{err}
		}
		f.Close()
	}
	dir, err := os.MkdirTemp("", "sdp-perf-")
	if err != nil {
		return nil, err
	}
	s := &servant{dir: dir}
	if s.child, err = startChild(true, append([]string{servantCommand, dir}, transports...)...); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	defer context.AfterFunc(ctx, s.end)()
	err = s.answers.Decode(&s.servantReady)
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
		err = errors.New("ended before it listened")
	case s.Error != "":
		err = errors.New(s.Error)
	}
	if err != nil {
		_ = s.stop(ctx, nil)
		return nil, fmt.Errorf("the second process: %w: %v", err, s.cmd.ProcessState)
	}
	return s, nil
}

// target returns where it listens by a transport.
func (s *servant) target(transport string) meter.Target {
	return meter.Target{Transport: transport, Address: s.Addresses[transport], Timeout: connectTimeout * time.Millisecond}
}

// stop ends the servant. It returns err, with how the servant ended if that explains it.
func (s *servant) stop(ctx context.Context, err error) error {
	s.end()
	_ = s.wait()            // the state says more
	_ = os.RemoveAll(s.dir) // if it was killed
	if state := s.cmd.ProcessState; err != nil && !state.Success() && ctx.Err() == nil {
		return fmt.Errorf("%w (the second process: %v)", err, state)
	}
	return err
}
