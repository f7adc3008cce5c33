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

// The run without a test has 5 rounds of 6 tests on 3 transports, and two limits of the machine.
const (
	defaultRounds = 5
	defaultTotal  = 15 * time.Second
	verifyFirst   = 32 << 20
)

// defaultTests are rows of the table.
var defaultTests = []struct {
	name, unit string
	p          meter.Params
}{
	{"64 B round trip", "us", meter.Params{Test: meter.Latency, Streams: 1, Size: 64}},
	{"16 KiB round trip", "us", meter.Params{Test: meter.Latency, Streams: 1, Size: 16 << 10}},
	{"64 B, 16 at once", "us", meter.Params{Test: meter.Latency, Streams: 16, Size: 64}},
	{"64 B, 10000/s", "us", meter.Params{Test: meter.Loaded, Streams: 1, Size: 64, Rate: 10_000}},
	{"connect and ask", "us", meter.Params{Test: meter.Connect, Streams: 1, Size: 64}},
	{"64 KiB one way", "GB/s", meter.Params{Test: meter.Bandwidth, Streams: 1, Size: 64 << 10}},
}

// compare compares the transports between this process and a second one.
func (o *options) compare(ctx context.Context, out io.Writer) error {
	c := report.NewComparison(o.head(), defaultRounds)
	s, err := startServant(ctx, meter.Transports...)
	if err != nil {
		return err
	}
	err = s.stop(ctx, compareRounds(ctx, s, c, cmp.Or(o.Time, defaultTotal)))
	progress("")
	if len(c.Rows) == 0 { // nothing was measured
		return err
	}
	c.Finish(meter.OwnCPU()+s.cmd.ProcessState.UserTime()+s.cmd.ProcessState.SystemTime(), err)
	return o.print(out, c, c.Text, c.Picture(), err)
}

// compareRounds measures. In each round it begins with another transport.
func compareRounds(ctx context.Context, s *servant, c *report.Comparison, total time.Duration) error {
	for _, t := range meter.Transports {
		progress("verifying: " + t)
		if err := meter.Verify(ctx, s.target(t), 1, verifyFirst); err != nil {
			return fmt.Errorf("%s: %w", t, err)
		}
	}
	c.Verified = verifyFirst
	// A seventh of the time is for what is between the slices, a sixth of a slice is not measured.
	slices := defaultRounds * (len(defaultTests)*len(meter.Transports) + 2)
	slice := max(total*6/7/time.Duration(slices), 6*time.Millisecond)
	var parks, trips uint64
	for round := range defaultRounds {
		for i, test := range defaultTests {
			for k := range meter.Transports {
				t := meter.Transports[(round+k)%len(meter.Transports)]
				progress(fmt.Sprintf("round %d of %d: %s: %s", round+1, defaultRounds, test.name, t))
				p := test.p
				p.Omit, p.Time = slice/6, slice*5/6
				r, err := meter.Run(ctx, s.target(t), p, meter.Observer{})
				if err != nil {
					return fmt.Errorf("%s, %s: %w", t, test.name, err)
				}
				c.Add(test.name, test.unit, t, report.Times(r))
				if i == 0 && t == "sdp" {
					parks += r.Here.Paths.ReadParks + r.There.Paths.ReadParks
					trips += r.Here.Streams[0].Ops
				}
			}
		}
		progress(fmt.Sprintf("round %d of %d: limits of the machine", round+1, defaultRounds))
		c.Add("limit, round trip", "us", report.Limit, meter.Handover(slice))
		c.Add("limit, one way", "GB/s", report.Limit, meter.Copies(slice))
		c.Rounds++
	}
	c.Slept = float64(parks) / float64(max(trips, 1))
	return nil
}
