package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
	"github.com/ntbnet/ntbnet/internal/perf/report"
)

// runServe serves until it is interrupted, which is its normal end, or with -1 one run.
func runServe(ctx context.Context, o *options, out io.Writer) error {
	address := meter.Address(o.transport, o.bind, strconv.Itoa(o.port))
	ln, err := meter.Listen(ctx, o.transport, address)
	if err != nil {
		if errors.Is(err, syscall.EADDRINUSE) && o.transport != "unix" && meter.IsIperf3(ctx, net.JoinHostPort(orLocal(o.bind), strconv.Itoa(o.port))) {
			return badInputf("iperf3 has port %d: choose another one by -p, at both ends", o.port)
		}
		return badInput{err}
	}
	srv := &meter.Server{Once: o.once}
	srv.Observer = o.observer(out, srv)
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(ln) }()
	defer srv.Close()
	by := o.transport
	if by == "" {
		by = "sdp and tcp"
	}
	if o.json || o.stream {
		out = os.Stderr
	}
	if _, err := fmt.Fprintf(out, "Server listening on %s by %s\n", ln.Addr(), by); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		if err == nil {
			srv.Wait() // the last run prints what it has
		}
		return err
	}
}

func orLocal(host string) string {
	if host == "" {
		return "localhost"
	}
	return host
}

// observer prints the runs of a server.
func (o *options) observer(out io.Writer, srv *meter.Server) meter.Observer {
	var mu sync.Mutex
	runs := make(map[*meter.Result]*report.Reporter)
	of := func(r *meter.Result) *report.Reporter {
		mu.Lock()
		defer mu.Unlock()
		if runs[r] == nil {
			runs[r] = o.reporter(out, "")
		}
		return runs[r]
	}
	return meter.Observer{
		Every: timeOf(o.interval),
		Connected: func(r *meter.Result) {
			if !o.json && !o.stream {
				fmt.Fprintf(out, "Accepted a connection from %s by %s: %s\n", r.Remote, r.Transport, r.Test)
			}
			of(r).Start(r)
		},
		Interval: func(r *meter.Result, in meter.Interval) { of(r).Interval(r, in) },
		Ended: func(r *meter.Result, err error) {
			if err := of(r).End(r, err, os.Stderr); err != nil {
				fmt.Fprintln(os.Stderr, "sdp-perf: "+oneLine(err))
			}
			mu.Lock()
			defer mu.Unlock()
			delete(runs, r)
		},
		Refused: func(err error) { fmt.Fprintln(os.Stderr, "sdp-perf: a client was refused: "+oneLine(err)) },
	}
}
