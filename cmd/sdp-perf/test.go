package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
	"github.com/ntbnet/ntbnet/internal/perf/report"
)

// withServer calls f with the server that the flags name, or with a second process of this machine.
func (o *options) withServer(ctx context.Context, f func(to meter.Target) error) error {
	if o.client != "" {
		return f(meter.Target{
			Transport: o.transport, Family: o.family, Timeout: time.Duration(o.timeout) * time.Millisecond, Port: o.cport, Trace: o.trace,
			Address: meter.Address(o.transport, o.client, strconv.Itoa(o.port)),
		})
	}
	s, err := startServant(ctx, o.transport)
	if err != nil {
		return err
	}
	return s.stop(ctx, f(s.target(o.transport)))
}

// verified checks each byte of a stream both ways, and so finds out whether there is a server.
func (o *options) verified(ctx context.Context, to meter.Target, streams int) (uint64, error) {
	n := uint64(verifyBytes / streams)
	to.Port = 0 // the ports would not be free again
	return n * uint64(streams), o.explain(ctx, to, meter.Verify(ctx, to, streams, n))
}

// explain says what to do about a server that cannot be reached.
func (o *options) explain(ctx context.Context, to meter.Target, err error) error {
	var dialled *meter.DialError
	switch {
	case errors.Is(err, meter.ErrIperf3):
		return badInput{err}
	case o.client == "" || ctx.Err() != nil || !errors.As(err, &dialled):
		return err
	case errors.Is(err, syscall.ECONNREFUSED) && to.Transport == "sdp" && meter.IsIperf3(ctx, to.Address):
		return badInputf("%s: iperf3 has that port, and no sdp-perf: choose another one by -p, at both ends", to.Address)
	case errors.Is(err, syscall.ECONNREFUSED), to.Transport == "unix" && errors.Is(err, fs.ErrNotExist):
		server := "" // the flags of one that this client would reach
		switch {
		case o.transport == "unix":
			server = " -B " + o.client
		case o.port != defaultPort:
			server = fmt.Sprintf(" -p %d", o.port)
		}
		return badInputf("%w (start a server there: sdp-perf -s%s)", err, server)
	case errors.Is(err, syscall.EHOSTUNREACH) && to.Transport == "sdp":
		return badInputf("%w (to a machine without a bridge: --transport tcp)", err)
	}
	return badInput{err}
}

// measure carries out one test and prints it.
func (o *options) measure(ctx context.Context, out io.Writer) error {
	p := o.Params
	return o.withServer(ctx, func(to meter.Target) (err error) {
		rep := o.reporter(out, cmp.Or(o.client, to.Address))
		if p.Test != meter.Idle {
			if rep.Verified, err = o.verified(ctx, to, min(p.Streams, 16)); err != nil {
				return errors.Join(err, rep.End(nil, err, os.Stderr))
			}
		}
		r, err := meter.Run(ctx, to, p, meter.Observer{Connected: rep.Start, Interval: rep.Interval, Every: o.interval})
		var written, drawn error
		if written = rep.End(r, err, os.Stderr); written != nil {
			written = fmt.Errorf("write the result: %w", written)
		}
		if r == nil {
			err = o.explain(ctx, to, err)
		} else {
			drawn = o.draw(report.Picture(r))
		}
		return cmp.Or(err, written, drawn)
	})
}
