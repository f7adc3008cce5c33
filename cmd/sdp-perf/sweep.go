package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
	"github.com/ntbnet/ntbnet/internal/perf/report"
	"github.com/ntbnet/ntbnet/sdp"
)

// runSweep measures round trips by size. Without --json it prints NetPIPE's columns: bytes, Mbit/s
// one way, seconds one way.
func runSweep(ctx context.Context, o *options, out io.Writer) error {
	sizes := report.SweepSizes()
	if o.length > 0 {
		sizes = []int{int(min(o.length, meter.MaxSize))}
	}
	total := defaultTestTime
	if o.time > 0 {
		total = timeOf(o.time)
	}
	return o.withServer(ctx, func(to meter.Target) error {
		sweep := report.NewSweep(programVersion(), o.arguments, to.Transport)
		n, err := o.verified(ctx, to, 1)
		if err != nil {
			return err
		}
		sweep.Verified = n
		line := newProgress(os.Stderr)
		for _, size := range sizes {
			line.show(fmt.Sprintf("%d B", size))
			slice := max(total/time.Duration(len(sizes)), time.Millisecond)
			p := meter.Params{Test: meter.Latency, Streams: 1, Size: size, Omit: slice / 6, Time: slice * 5 / 6, Window: int(o.window)}
			var r *meter.Result
			r, err = meter.Run(ctx, to, p, meter.Observer{})
			if err == nil && r.Here.Times.Count() == 0 { // the time was too short
				p.Omit, p.Time, p.Bytes = 0, 0, 3*uint64(size)
				r, err = meter.Run(ctx, to, p, meter.Observer{})
			}
			if err != nil {
				err = fmt.Errorf("%d B: %w", size, err)
				break
			}
			sweep.Add(size, report.Times(r))
			if !o.json {
				line.clear()
				if _, err = io.WriteString(out, sweep.Line()); err != nil {
					break
				}
			}
		}
		line.clear()
		if to.Transport == "sdp" {
			sweep.Crossovers = crossovers()
		}
		sweep.End(err)
		if o.json {
			err = firstError(err, sweep.JSON(out))
		} else if text := sweep.CrossoverText(); text != "" {
			fmt.Fprint(os.Stderr, text)
		}
		if o.svg != "" {
			err = firstError(err, o.draw(sweep.Picture()))
		}
		return err
	})
}

// crossovers returns from which size on the devices of this process copy by their engines.
func crossovers() []sdp.Crossover {
	f, err := sdp.Open("")
	if err != nil {
		return nil
	}
	defer f.Close()
	return f.Crossovers()
}
