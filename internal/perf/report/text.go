package report

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
)

// Text writes a run as iperf3 does, line by line. A failed write ends what follows; Err returns it.
type Text struct {
	W      io.Writer
	Format Format
	Err    error
}

func (t *Text) printf(format string, args ...any) {
	if t.Err == nil {
		_, t.Err = fmt.Fprintf(t.W, format, args...)
	}
}

// Start writes what connects whom.
func (t *Text) Start(r *meter.Result) {
	for i, c := range r.Connected {
		if i == 8 && len(r.Connected) > 10 {
			t.printf("and %d streams more\n", len(r.Connected)-i)
			break
		}
		t.printf("[%3d] local %s connected to %s by %s\n", i+1, c[0], c[1], r.Transport)
	}
	t.head(r)
}

func (t *Text) head(r *meter.Result) {
	switch r.Test {
	case meter.Bandwidth:
		t.printf("[ ID] %-20s  Transfer      Bitrate\n", "Interval")
	case meter.Idle:
	default:
		t.printf("[ ID] %-20s  Operations    Rate            Mean\n", "Interval")
	}
}

// row writes what a stream, or all of them, did in a time.
func (t *Text) row(r *meter.Result, id string, from, to time.Duration, s meter.Stream, more string) {
	took := max((to - from).Seconds(), 1e-9)
	span := fmt.Sprintf("%6.2f-%-6.2f sec", from.Seconds(), to.Seconds())
	if r.Test == meter.Bandwidth {
		t.printf("[%3s] %-20s  %-12s  %s%s\n", id, span, Bytes(s.Bytes), t.Format.Rate(float64(s.Bytes)/took), more)
		return
	}
	mean := "-"
	if s.Ops > 0 && r.Test != meter.Loaded {
		mean = Number(took*1e6*float64(r.Streams)/float64(s.Ops)) + " us"
	}
	t.printf("[%3s] %-20s  %-12d  %-14s  %s%s\n", id, span, s.Ops, scaled(float64(s.Ops)/took, 1000)+"/sec", mean, more)
}

// Interval writes what was done in a part of the run.
func (t *Text) Interval(r *meter.Result, in meter.Interval) {
	if r.Test == meter.Idle {
		return
	}
	more := ""
	if in.Omitted {
		more = "  (omitted)"
	}
	if len(in.Streams) <= 8 && r.Test == meter.Bandwidth || len(in.Streams) == 1 {
		for _, s := range in.Streams {
			t.row(r, fmt.Sprint(s.ID), in.Start, in.End, s, direction(r, s)+more)
		}
	}
	for _, sends := range []bool{true, false} {
		if sum, n := total(in.Streams, sends); n > 1 {
			t.row(r, "SUM", in.Start, in.End, sum, direction(r, sum)+more)
		}
	}
}

// direction returns which way a stream goes, where there are both.
func direction(r *meter.Result, s meter.Stream) string {
	switch {
	case !r.Bidir:
		return ""
	case s.Sends:
		return "  [TX]"
	}
	return "  [RX]"
}

// total returns what the streams of a direction did, and how many there are.
func total(all []meter.Stream, sends bool) (sum meter.Stream, n int) {
	for _, s := range all {
		if s.Sends == sends {
			sum.Bytes += s.Bytes
			sum.Ops += s.Ops
			sum.Took = max(sum.Took, s.Took)
			sum.ID = s.ID
			n++
		}
	}
	sum.Sends = sends
	return sum, n
}

// End writes the sums. err says why the run ended early, or is nil.
func (t *Text) End(r *meter.Result, err error) {
	t.printf("- - - - - - - - - - - - - - - - - - - - - - - - -\n")
	if err != nil {
		t.printf("Ended early, %s: %v\n", Progress(r), err)
	}
	t.head(r)
	for side, s := range []*meter.Side{r.Here, r.There} {
		if s == nil || r.Test == meter.Idle || side == 1 && r.Test != meter.Bandwidth {
			continue
		}
		for _, sends := range []bool{true, false} {
			more := "  receiver"
			if sends {
				more = "  sender"
			}
			if r.Test != meter.Bandwidth {
				more = ""
			}
			sum, n := total(s.Streams, sends)
			if n > 1 && n <= 8 && r.Test == meter.Bandwidth {
				for _, one := range s.Streams {
					if one.Sends == sends {
						t.row(r, fmt.Sprint(one.ID), 0, one.Took, one, more)
					}
				}
			}
			if n > 0 {
				id := "SUM"
				if n == 1 {
					id = fmt.Sprint(sum.ID)
				}
				t.row(r, id, 0, sum.Took, sum, more)
			}
		}
	}
	t.printf("%s", Details(r))
}

// Progress says how far a run got.
func Progress(r *meter.Result) string {
	took := time.Duration(0)
	if r.Here != nil {
		took = r.Here.Took
	}
	if r.Time > 0 {
		return fmt.Sprintf("%.2f of %g s measured", took.Seconds(), r.Time.Seconds())
	}
	done, _ := total(r.Here.Streams, !r.Reverse)
	return fmt.Sprintf("%s of %s measured", Bytes(done.Bytes), Bytes(r.Bytes))
}

// Times returns the times of the operations that a run made; for Bandwidth those of each MiB
// that was received.
func Times(r *meter.Result) *meter.Times {
	all := &meter.Times{}
	for _, s := range []*meter.Side{r.Here, r.There} {
		if s != nil && s.Times != nil {
			all.Merge(s.Times)
		}
	}
	return all
}

// Details has percentiles, the processor time of both sides, and what SDP counted.
func Details(r *meter.Result) string {
	var b strings.Builder
	what := map[string]string{
		meter.Bandwidth: "1 MiB received", meter.Latency: "Round trip", meter.Connect: "Connect, request, response",
		meter.Loaded: "Since it was due",
	}[r.Test]
	if times := Times(r); times.Count() > 0 {
		b.WriteString(percentiles(what, times))
	}
	if r.Here != nil && r.Here.Sent != nil && r.Here.Sent.Count() > 0 {
		b.WriteString(percentiles("Since it began", r.Here.Sent))
	}
	for i, s := range []*meter.Side{r.Here, r.There} {
		if s == nil {
			continue
		}
		name := []string{"here", "there"}[i]
		fmt.Fprintf(&b, "CPU %-6s %.1f %% (%.1f %% user, %.1f %% system)%s\n", name+":",
			share(s.CPU.Total(), s.Took), share(s.CPU.User, s.Took), share(s.CPU.System, s.Took), cpuEach(r, s))
		if p := s.Paths; p != nil && r.Test != meter.Idle {
			fmt.Fprintf(&b, "SDP %-6s bytes inline %d, MMIO %d, DMA %d; doorbells %d; parks %d read, %d write\n", name+":",
				p.InlineBytes, p.MMIOBytes, p.DMABytes, p.Doorbells, p.ReadParks, p.WriteParks)
		}
	}
	for i, name := range []string{"here: ", "there:"} {
		if each := perConnection(r, i); r.Test == meter.Idle && each != 0 {
			fmt.Fprintf(&b, "Memory %s %.2f KiB for each of %d connections\n", name, each/1024, r.Streams)
		}
	}
	return b.String()
}

func share(part, of time.Duration) float64 {
	if of <= 0 {
		return 0
	}
	return 100 * float64(part) / float64(of)
}

// cpuEach returns the processor time of a side for a GB or an operation.
func cpuEach(r *meter.Result, s *meter.Side) string {
	var bytes, ops uint64
	for _, st := range s.Streams {
		bytes, ops = bytes+st.Bytes, ops+st.Ops
	}
	switch {
	case ops == 0 || r.Test == meter.Idle:
		return ""
	case r.Test == meter.Bandwidth:
		return fmt.Sprintf(", %s s/GB", Number(s.CPU.Total().Seconds()/(float64(bytes)/1e9)))
	}
	return fmt.Sprintf(", %s us/op", Number(Micros(s.CPU.Total())/float64(ops)))
}

// percentiles returns a distribution in two lines.
func percentiles(what string, t *meter.Times) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, us: %d times, min %s, mean %s, max %s\n ", what, t.Count(), Number(Micros(t.Min())), Number(Micros(t.Mean())), Number(Micros(t.Max())))
	for _, p := range meter.Percentiles {
		fmt.Fprintf(&b, " p%g %s", p, Number(Micros(t.At(p))))
	}
	b.WriteString("\n")
	return b.String()
}
