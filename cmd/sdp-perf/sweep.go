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
	if o.length.n > 0 {
		sizes = []int{int(min(o.length.n, meter.MaxSize))}
	}
	total := defaultTestTime
	if o.time > 0 {
		total = timeOf(o.time)
	}
	return o.withServer(ctx, func(to meter.Target) error {
		sweep := &report.Sweep{Head: report.NewHead(programVersion(), o.arguments), Transport: to.Transport}
		var err error
		if sweep.Verified, err = o.verified(ctx, to, 1); err != nil {
			return err
		}
		line := newProgress(os.Stderr)
		for i := 0; i < len(sizes) && err == nil; i++ {
			line.show(fmt.Sprintf("%d B", sizes[i]))
			slice := max(total/time.Duration(len(sizes)), time.Millisecond)
			p := meter.Params{Test: meter.Latency, Streams: 1, Size: sizes[i], Omit: slice / 6, Time: slice * 5 / 6, Window: int(o.window.n)}
			var r *meter.Result
			r, err = meter.Run(ctx, to, p, meter.Observer{})
			if err == nil && r.Here.Times.Count() == 0 { // the time was too short
				p.Omit, p.Time, p.Bytes = 0, 0, 3*uint64(p.Size)
				r, err = meter.Run(ctx, to, p, meter.Observer{})
			}
			line.clear()
			if err == nil {
				if text := sweep.Add(p.Size, report.Times(r)); !o.json {
					_, err = io.WriteString(out, text)
				}
			}
		}
		if to.Transport == "sdp" {
			sweep.Crossovers = crossovers()
		}
		sweep.Fail(err)
		if o.json {
			err = firstError(err, report.WriteJSON(out, sweep))
		}
		for _, c := range sweep.Crossovers {
			if text := "the device's engine is never faster"; !o.json {
				if c.Threshold > 0 {
					text = fmt.Sprintf("from %s on the device's engine copies", meter.SizeText(c.Threshold))
				}
				fmt.Fprintf(os.Stderr, "To %s: %s.\n", c.Peer, text)
			}
		}
		return firstError(err, o.draw(sweep.Picture()))
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
