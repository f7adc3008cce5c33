package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/flags"
	"github.com/ntbnet/ntbnet/internal/perf/meter"
	"github.com/ntbnet/ntbnet/internal/perf/report"
)

func timeOf(s seconds) time.Duration { return time.Duration(s) }

// withServer calls f with the server that the flags name, or with a second process of this machine.
func (o *options) withServer(ctx context.Context, f func(to meter.Target) error) error {
	if o.client != "" {
		return f(meter.Target{
			Transport: o.transport, Timeout: time.Duration(o.timeout) * time.Millisecond,
			Address: meter.Address(o.transport, o.client, strconv.Itoa(o.port)),
		})
	}
	s, err := startServant(ctx, o.transport)
	if err != nil {
		return err
	}
	err = f(s.target(o.transport))
	if state := s.stop(); err != nil && !state.Success() && ctx.Err() == nil {
		err = fmt.Errorf("%w (the second process: %v)", err, state)
	}
	return err
}

// verified checks each byte of a stream both ways, and so finds out whether there is a server.
func (o *options) verified(ctx context.Context, to meter.Target, streams int) (uint64, error) {
	n := uint64(verifyBytes / streams)
	if err := meter.Verify(ctx, to, streams, n); err != nil {
		return 0, o.explain(ctx, to, err)
	}
	return n * uint64(streams), nil
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
		return badInputf("%w (start a server there: sdp-perf -s%s)", err, o.serverFlags())
	case errors.Is(err, syscall.EHOSTUNREACH) && to.Transport == "sdp":
		return badInputf("%w (to a machine without a bridge: --transport tcp)", err)
	}
	return badInput{err}
}

// serverFlags are those of a server that this client would reach.
func (o *options) serverFlags() string {
	if o.transport == "unix" {
		return " -B " + o.client
	}
	if o.port != defaultPort {
		return fmt.Sprintf(" -p %d", o.port)
	}
	return ""
}

// measureTest carries out one test and prints it.
func measureTest(ctx context.Context, o *options, out io.Writer) error {
	p, err := o.params()
	if err != nil {
		return err
	}
	return o.withServer(ctx, func(to meter.Target) error {
		rep := o.reporter(out, to.Address)
		if o.client != "" {
			rep.Host = o.client
		}
		if p.Test == meter.Idle {
			rep.Verified = 0
		} else if rep.Verified, err = o.verified(ctx, to, min(p.Streams, 16)); err != nil {
			return errors.Join(err, rep.End(nil, err, os.Stderr))
		}
		if !o.json && !o.stream {
			if _, err := fmt.Fprintf(out, "Connected to %s by %s: %s\n", to.Address, to.Transport, p.Test); err != nil {
				return err
			}
		}
		r, err := meter.Run(ctx, to, p, meter.Observer{Connected: rep.Start, Interval: rep.Interval, Every: timeOf(o.interval)})
		if r == nil {
			err = o.explain(ctx, to, err)
		}
		if written := rep.End(r, err, os.Stderr); written != nil && !errors.Is(err, context.Canceled) {
			err = firstError(err, fmt.Errorf("write the result: %w", written))
		}
		if r != nil {
			err = firstError(err, o.draw(report.Picture(r)))
		}
		return err
	})
}

// print prints a report as text or JSON. err is what ended it early; it is returned, or that of the write.
func (o *options) print(out io.Writer, rep any, text func(io.Writer) error, err error) error {
	written := error(nil)
	if o.json || o.stream {
		written = report.WriteJSON(out, rep)
	} else {
		written = text(out)
	}
	if written == nil {
		return err
	}
	_ = text(os.Stderr)
	return firstError(err, fmt.Errorf("write the result: %w", written))
}

func firstError(err, other error) error {
	if err != nil {
		return err
	}
	return other
}

// draw writes the picture of --svg.
func (o *options) draw(c report.Chart) error {
	if o.svg == "" {
		return nil
	}
	if err := writeFile(o.svg, c.Write); err != nil {
		return fmt.Errorf("--svg: %w", err)
	}
	return nil
}

func programVersion() string { return flags.Version("sdp-perf") }
