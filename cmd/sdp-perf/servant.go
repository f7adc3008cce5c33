package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
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

func runServant(ctx context.Context, args []string, out io.Writer) error {
	ignoreSignals()
	if len(args) < 2 {
		return badInputf("%s is started by sdp-perf itself", servantCommand)
	}
	defer os.RemoveAll(args[0])
	srv := &meter.Server{}
	defer srv.Close()
	ready := servantReady{Addresses: make(map[string]string)}
	for _, transport := range args[1:] {
		address := map[string]string{"sdp": "localhost:0", "tcp": "127.0.0.1:0", "unix": filepath.Join(args[0], "socket")}[transport]
		ln, err := meter.Listen(ctx, transport, address)
		if err != nil {
			ready.Error = oneLine(err)
			break
		}
		if host, _, err := net.SplitHostPort(address); err == nil {
			_, port, _ := net.SplitHostPort(ln.Addr().String())
			address = net.JoinHostPort(host, port)
		}
		ready.Addresses[transport] = address
		go func() {
			if err := srv.Serve(ln); err != nil {
				fmt.Fprintln(os.Stderr, "sdp-perf: "+oneLine(err))
			}
		}()
	}
	if err := json.NewEncoder(out).Encode(ready); err != nil {
		return err
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
			return nil, badInputf("%w", err)
		}
		if err := f.Close(); err != nil {
			return nil, err
		}
	}
	dir, err := os.MkdirTemp("", "sdp-perf-")
	if err != nil {
		return nil, err
	}
	s := &servant{dir: dir}
	if s.child, err = startChild(true, append([]string{servantCommand, dir}, transports...)...); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	ctx, cancel := context.WithTimeoutCause(ctx, childStart, fmt.Errorf("does not listen after %v", childStart))
	defer cancel()
	defer context.AfterFunc(ctx, func() { s.stdout.Close() })()
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
		return nil, fmt.Errorf("the second process: %w: %v", err, s.stop())
	}
	return s, nil
}

// target returns where it listens by a transport.
func (s *servant) target(transport string) meter.Target {
	return meter.Target{Transport: transport, Address: s.Addresses[transport], Timeout: connectTimeout * time.Millisecond}
}

// stop ends the servant and returns how it ended.
func (s *servant) stop() *os.ProcessState {
	s.end()
	_ = s.wait()            // the state says more
	_ = os.RemoveAll(s.dir) // if it was killed
	return s.cmd.ProcessState
}
