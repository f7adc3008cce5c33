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

// servantCommand is the second process of a run on this machine. Its arguments are a directory,
// which it removes, and transports. It writes a servantReady to its standard output. When its standard
// input ends, its parent has closed it or has died, and it cleans up and ends.
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
		ready.Addresses[transport] = address
		if _, port, err := net.SplitHostPort(ln.Addr().String()); err == nil && transport != "unix" {
			host, _, _ := net.SplitHostPort(address)
			ready.Addresses[transport] = net.JoinHostPort(host, port)
		}
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
