package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/perf"
	"github.com/ntbnet/ntbnet/internal/perf/bench"
	"github.com/ntbnet/ntbnet/sdp"
)

// workerCommand is a process that measures for another one, as described in package
// bench. Its arguments are transports. bench uses it for a transport that must be
// measured in another environment than its own.
const workerCommand = "worker"

// spinOff are the options of a fabric in which SDP parks at once rather than
// spinning.
const spinOff = "?spin=0"

// networks starts the second process with everything that bench measures.
func networks(ctx context.Context, dir string, transports []string) (*child, []*bench.Network, error) {
	var list []service
	kinds := []string{commandService, byteService, httpService}
	for _, kind := range kinds {
		list = append(list, services(dir, kind, transports)...)
	}
	c, err := startChild(ctx, dir, list)
	if err != nil {
		return nil, nil, err
	}
	nets := make([]*bench.Network, len(transports))
	for i := range transports {
		at := func(kind int) perf.Endpoint { return c.endpoints[kind*len(transports)+i] }
		nets[i] = &bench.Network{Commands: at(0), Bytes: at(1), HTTP: at(2), Dial: dial}
	}
	return c, nets, nil
}

// runWorker measures until its standard input ends.
func runWorker(ctx context.Context, args []string, out io.Writer) error {
	ignoreSignals()
	if len(args) == 0 || checkTransports(args) != nil {
		return badInputf("%s is started by sdp-perf itself", workerCommand)
	}
	dir, err := os.MkdirTemp("", "sdp-perf-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	c, nets, err := networks(ctx, dir, args)
	if err != nil {
		return err
	}
	var transports []bench.Transport
	for _, n := range nets {
		transports = append(transports, noSpin{n})
	}
	err = bench.ServeWorker(ctx, os.Stdin, out, transports)
	c.stop()
	return err
}

// noSpin makes sure that a transport whose spinning is turned off did not spin.
// Otherwise its figure would be that of another transport.
type noSpin struct{ *bench.Network }

func (n noSpin) Measure(ctx context.Context, t bench.Task, d time.Duration) (bench.Outcome, error) {
	before := spins()
	o, err := n.Network.Measure(ctx, t, d)
	if did := spins() - before; err == nil && t.SpinOff && did > 0 {
		err = fmt.Errorf("%w: it spins (%d times) with %s", bench.ErrUnsupported, did, spinOff)
	}
	return o, err
}

func spins() uint64 {
	s := sdp.DefaultStats()
	return s.ReadSpins + s.WriteSpins
}

// lazyWorker starts its process when it is first needed.
type lazyWorker struct {
	transport string
	fabric    string          // its own fabric; Close removes it
	started   bench.Transport // nil until started
}

func (w *lazyWorker) Name() string { return w.transport }

func (w *lazyWorker) Measure(ctx context.Context, t bench.Task, d time.Duration) (bench.Outcome, error) {
	if w.started == nil {
		exe, err := os.Executable()
		if err != nil {
			return bench.Outcome{}, err
		}
		list, err := bench.StartWorker(ctx, func() *exec.Cmd {
			cmd := exec.Command(exe, workerCommand, w.transport)
			cmd.Env = append(os.Environ(), fabric.EnvFabric+"="+w.fabric)
			cmd.Stderr = os.Stderr
			return cmd
		})
		if err != nil {
			return bench.Outcome{}, err
		}
		w.started = list[0]
	}
	return w.started.Measure(ctx, t, d)
}

func (w *lazyWorker) Close() error {
	var err error
	if w.started != nil {
		err = w.started.Close()
	}
	return errors.Join(err, removeFabric(w.fabric))
}

// startPeer starts a worker of another module.
func startPeer(ctx context.Context, program string) ([]bench.Transport, error) {
	list, err := bench.StartWorker(ctx, func() *exec.Cmd {
		cmd := exec.Command(program)
		cmd.Stderr = io.Discard // the library's log
		return cmd
	})
	if errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrPermission) || errors.Is(err, exec.ErrNotFound) {
		return nil, badInputf("--shmipc: %s", strings.TrimSpace(err.Error()))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", program, err)
	}
	return list, nil
}
