package report

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
)

// Reporter prints one run, in the order of its methods: as iperf3 does, line by line, or with its keys.
type Reporter struct {
	Head
	W       io.Writer
	JSON    bool // in place of text
	Stream  bool // a line of JSON for each event, in place of text
	Unit    Format
	Verbose bool   // text has the version and the machine too
	Host    string // of the server, as the user has named it; "" in a server
	Port    int

	start     object
	intervals []object
	err       error // of the first write that failed; it ends what follows
}

func (p *Reporter) event(name string, data any) {
	if p.Stream && p.err == nil {
		p.err = json.NewEncoder(p.W).Encode(object{"event": name, "data": data})
	}
}

func (p *Reporter) printf(format string, args ...any) {
	if !p.JSON && !p.Stream && p.err == nil {
		_, p.err = fmt.Fprintf(p.W, format, args...)
	}
}

// Start is called when the streams are there.
func (p *Reporter) Start(r *meter.Result) {
	p.start = p.startOf(r)
	p.event("start", p.start)
	who := "Connected to"
	if p.Host == "" {
		who = "Accepted a connection from"
	}
	if p.Verbose {
		p.printf("%s\n%s, %d processors\n", p.Version, p.System, p.CPUs)
	}
	p.printf("%s %s by %s: %s\n", who, r.Remote, r.Transport, r.Test)
	for i, c := range r.Connected[:min(len(r.Connected), maxRows)] {
		p.printf("[%3d] local %s connected to %s by %s\n", i+1, c[0], c[1], r.Transport)
	}
	if n := len(r.Connected) - maxRows; n > 0 {
		p.printf("and %d streams more\n", n)
	}
	p.head(r)
}

func (p *Reporter) head(r *meter.Result) {
	switch r.Test {
	case meter.Bandwidth:
		p.printf("[ ID] %-20s  Transfer      Bitrate\n", "Interval")
	case meter.Idle:
	default:
		p.printf("[ ID] %-20s  Operations    Rate            Mean\n", "Interval")
	}
}

// row writes what a stream, or all of them, did in a time.
func (p *Reporter) row(r *meter.Result, id any, from, to time.Duration, s meter.Stream, more string) {
	took := max((to - from).Seconds(), 1e-9)
	span := fmt.Sprintf("%6.2f-%-6.2f sec", from.Seconds(), to.Seconds())
	if r.Test == meter.Bandwidth {
		p.printf("[%3v] %-20s  %-12s  %s%s\n", id, span, Bytes(s.Bytes), p.Unit.Rate(float64(s.Bytes)/took), more)
		return
	}
	mean := "-"
	if s.Ops > 0 && r.Test != meter.Loaded {
		mean = Number(took*1e6*float64(r.Streams)/float64(s.Ops)) + " us"
	}
	p.printf("[%3v] %-20s  %-12d  %-14s  %s%s\n", id, span, s.Ops, scaled(float64(s.Ops)/took, 1000)+"/sec", mean, more)
}

// maxRows is how many streams have rows of their own.
const maxRows = 8

// Interval is called for each part of the run.
func (p *Reporter) Interval(r *meter.Result, in meter.Interval) {
	j := intervalOf(r, in)
	p.event("interval", j)
	p.intervals = append(p.intervals, j)
	if r.Test == meter.Idle {
		return
	}
	row := func(id any, s meter.Stream) {
		more := ""
		if r.Bidir {
			more = map[bool]string{true: "  [TX]", false: "  [RX]"}[s.Sends]
		}
		if in.Omitted {
			more += "  (omitted)"
		}
		p.row(r, id, in.Start, in.End, s, more)
	}
	if len(in.Streams) <= maxRows && r.Test == meter.Bandwidth || len(in.Streams) == 1 {
		for _, s := range in.Streams {
			row(s.ID, s)
		}
	}
	for _, sends := range []bool{true, false} {
		if sum, n := total(in.Streams, sends); n > 1 {
			row("SUM", sum)
		}
	}
}

// total returns what the streams of a direction did, and how many there are.
func total(all []meter.Stream, sends bool) (sum meter.Stream, n int) {
	sum.Sends = sends
	for _, s := range all {
		if s.Sends == sends {
			sum.Bytes, sum.Ops, sum.Took = sum.Bytes+s.Bytes, sum.Ops+s.Ops, max(sum.Took, s.Took)
			n++
		}
	}
	return sum, n
}

// flow is what both ends of a stream, or of all streams of a direction, counted.
type flow struct {
	sender, receiver meter.Stream
	n                int // streams
}

// flows returns those of the streams, and the sums of what the client and what the server sent. What a
// lost server counted is 0.
func flows(r *meter.Result) (each []flow, sums [2]flow) {
	here, there := r.Here.Streams, []meter.Stream(nil)
	if r.There != nil {
		there = r.There.Streams
	}
	for i, s := range here {
		other := meter.Stream{ID: s.ID}
		if i < len(there) {
			other = there[i]
		}
		if !s.Sends {
			s, other = other, s
		}
		each = append(each, flow{s, other, 1})
	}
	sums[0].sender, sums[0].n = total(here, true)
	sums[0].receiver, _ = total(there, false)
	sums[1].sender, _ = total(there, true)
	sums[1].receiver, sums[1].n = total(here, false)
	return each, sums
}

// End is called when the run is over; r is nil if it did not begin, and err says why it ended early.
// It returns the error of a write. What it could not write it writes to other.
func (p *Reporter) End(r *meter.Result, err error, other io.Writer) error {
	if p.start == nil { // nobody was reached
		p.start = object{"connected": []object{}, "version": p.Version, "system_info": p.System, "timestamp": p.Timestamp}
	}
	doc := object{"start": p.start, "intervals": append([]object{}, p.intervals...), "end": object{}}
	if r != nil {
		doc["end"] = endOf(r)
		p.end(r, err)
		if r.Output != "" {
			doc["server_output_text"] = r.Output
			p.event("server_output_text", r.Output)
			p.printf("\nServer output:\n%s", r.Output)
		}
	}
	if err != nil {
		doc["error"] = "error - " + err.Error()
		p.event("error", doc["error"])
	}
	p.event("end", doc["end"])
	if p.JSON {
		p.err = WriteJSON(p.W, doc)
	}
	if p.err != nil && r != nil {
		(&Reporter{W: other, Unit: p.Unit}).end(r, err)
	}
	return p.err
}

// end writes the sums as text.
func (p *Reporter) end(r *meter.Result, err error) {
	p.printf("- - - - - - - - - - - - - - - - - - - - - - - - -\n")
	each, sums := flows(r)
	if err != nil {
		got, of := fmt.Sprintf("%.2f", r.Here.Took.Seconds()), fmt.Sprintf("%g s", r.Time.Seconds())
		if r.Time == 0 {
			sent, _ := total(r.Here.Streams, r.Here.Streams[0].Sends)
			got, of = Bytes(sent.Bytes), Bytes(r.Bytes)
		}
		p.printf("Ended early, %s of %s measured: %v\n", got, of, err)
	}
	p.head(r)
	row := func(id any, s meter.Stream, more string) {
		if s.Took > 0 {
			p.row(r, id, 0, s.Took, s, more)
		}
	}
	for i, f := range append(each, sums[:]...) {
		id := any(f.sender.ID)
		switch sum := i >= len(each); {
		case r.Test == meter.Idle, sum && f.n < 2, !sum && len(each) > maxRows:
			continue
		case sum:
			id = "SUM"
		}
		if r.Test == meter.Bandwidth {
			row(id, f.sender, "  sender")
			row(id, f.receiver, "  receiver")
		} else if len(each) == 1 || i >= len(each) {
			row(id, f.sender, "")
		}
	}
	p.details(r)
}

// Times returns the times of the operations that a run made; for Bandwidth those of each MiB
// that was received.
func Times(r *meter.Result) *meter.Times {
	all := &meter.Times{}
	all.Merge(&r.Here.Times)
	if r.There != nil {
		all.Merge(&r.There.Times)
	}
	return all
}

// details writes percentiles, the processor time of both sides, and what SDP counted.
func (p *Reporter) details(r *meter.Result) {
	p.percentiles(map[string]string{
		meter.Bandwidth: "1 MiB received", meter.Latency: "Round trip", meter.Connect: "Connect, request, response",
		meter.Loaded: "Since it was due",
	}[r.Test], Times(r))
	p.percentiles("Since it began", &r.Here.Sent)
	for i, s := range []*meter.Side{r.Here, r.There} {
		name := []string{"here:", "there:"}[i]
		if s == nil {
			continue
		}
		user, system := cpuShare(s)
		p.printf("CPU %-6s %.1f %% (%.1f %% user, %.1f %% system)%s\n", name, user+system, user, system, cpuEach(r, s))
		if c := s.Paths; c != nil && r.Test != meter.Idle {
			p.printf("SDP %-6s bytes inline %d, MMIO %d, DMA %d; doorbells %d; parks %d read, %d write\n", name,
				c.InlineBytes, c.MMIOBytes, c.DMABytes, c.Doorbells, c.ReadParks, c.WriteParks)
		}
		if s.Memory != 0 {
			p.printf("Memory %-6s %.2f KiB for each of %d connections\n", name, float64(s.Memory)/1024/float64(r.Streams), r.Streams)
		}
	}
}

// cpuShare returns how much of a processor a side took, in percent.
func cpuShare(s *meter.Side) (user, system float64) {
	if s.Took <= 0 {
		return 0, 0
	}
	return 100 * float64(s.CPU.User) / float64(s.Took), 100 * float64(s.CPU.System) / float64(s.Took)
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
	return fmt.Sprintf(", %s us/op", Number(meter.Micros(s.CPU.Total())/float64(ops)))
}

// percentiles writes a distribution in two lines, if there are times.
func (p *Reporter) percentiles(what string, t *meter.Times) {
	if t.Count() == 0 {
		return
	}
	p.printf("%s, us: %d times, min %s, mean %s, max %s\n ", what, t.Count(), Number(meter.Micros(t.Min())), Number(meter.Micros(t.Mean())), Number(meter.Micros(t.Max())))
	for _, at := range meter.Percentiles {
		p.printf(" p%g %s", at, Number(meter.Micros(t.At(at))))
	}
	p.printf("\n")
}
