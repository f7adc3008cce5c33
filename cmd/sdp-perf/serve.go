package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
)

// detached is set in the environment of a server that -D has started.
const detached = "SDP_PERF_DETACHED"

// detach starts this server again, with no terminal to print to.
func detach(out io.Writer) error {
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(exe, os.Args[1:]...)
	cmd.Env = append(os.Environ(), detached+"=1")
	if err := cmd.Start(); err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "Server runs as process %d\n", cmd.Process.Pid)
	return err
}

// serve serves until it is interrupted, which is its normal end, or with -1 until the first client is served.
func (o *options) serve(ctx context.Context, out io.Writer) error {
	port := strconv.Itoa(o.port)
	ln, err := meter.Listen(ctx, o.transport, o.family, meter.Address(o.transport, o.bind, port))
	if err != nil {
		switch {
		case !errors.Is(err, syscall.EADDRINUSE):
			return badInput{err}
		case o.transport != "unix" && meter.IsIperf3(ctx, net.JoinHostPort(cmp.Or(o.bind, "localhost"), port)):
			return badInputf("iperf3 has port %d: choose another one by -p, at both ends", o.port)
		}
		return badInputf("%w: stop what listens there, or choose another place by -p or -B", err)
	}
	defer ln.Close()
	switch {
	case os.Getenv(detached) != "":
		signal.Ignore(os.Interrupt, syscall.SIGHUP) // of the terminal
	case o.daemon:
		return errors.Join(ln.Close(), detach(out))
	}
	says := out
	if o.json || o.stream {
		says = os.Stderr
	}
	if _, err := fmt.Fprintf(says, "Server listening on %s by %s\n", ln.Addr(), cmp.Or(o.transport, "sdp and tcp")); err != nil {
		return err
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	srv := &meter.Server{
		Trace: o.trace,
		Observe: func(p meter.Params) meter.Observer {
			rep := o.reporter(out, "")
			var printed bytes.Buffer
			if p.Output {
				rep.W = io.MultiWriter(out, &printed)
			}
			return meter.Observer{Connected: rep.Start, Interval: rep.Interval, Every: o.interval, Output: printed.String, Ended: func(r *meter.Result, err error) {
				if err := rep.End(r, err, os.Stderr); err != nil {
					complain(err)
				}
				if o.once && (err != nil || !r.More) {
					end()
				}
			}}
		},
		Refused: func(err error) { complain(fmt.Errorf("a client was refused: %w", err)) },
	}
	return srv.Serve(ctx, ln)
}
