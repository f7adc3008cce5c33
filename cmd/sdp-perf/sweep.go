package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
	"github.com/ntbnet/ntbnet/internal/perf/report"
)

// sweep measures round trips by size. Without --json it prints NetPIPE's columns: bytes, Mbit/s
// one way, seconds one way.
func (o *options) sweep(ctx context.Context, out io.Writer) error {
	sizes := report.SweepSizes()
	if o.Size > 0 {
		sizes = []int{min(o.Size, meter.MaxSize)}
	}
	slice := max(cmp.Or(o.Time, defaultTestTime)/time.Duration(len(sizes)), time.Millisecond)
	return o.withServer(ctx, func(to meter.Target) (err error) {
		sweep := &report.Sweep{Head: o.head(), Transport: to.Transport}
		if sweep.Verified, err = o.verified(ctx, to, 1); err != nil {
			return err
		}
		for i := 0; i < len(sizes) && err == nil; i++ {
			progress(fmt.Sprintf("%d B", sizes[i]))
			p := meter.Params{Test: meter.Latency, Streams: 1, Size: sizes[i], Time: slice, Window: o.Window, More: i < len(sizes)-1}
			var r *meter.Result
			r, err = meter.Run(ctx, to, p, meter.Observer{})
			progress("")
			if err == nil {
				if text := sweep.Add(p.Size, report.Times(r)); !o.json {
					_, err = io.WriteString(out, text)
				}
			}
		}
		sweep.Fail(err)
		if o.json {
			err = cmp.Or(err, report.WriteJSON(out, sweep))
		}
		return cmp.Or(err, o.draw(sweep.Picture()))
	})
}
