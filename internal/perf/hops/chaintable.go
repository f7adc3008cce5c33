package hops

import (
	"fmt"
	"strings"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// writeChains writes what the chains have achieved, ours beside the others, and what our
// forwarders did.
func (r *Report) writeChains(b *strings.Builder) {
	b.WriteString("\nChains of processes: a client, one forwarder for each hop but the first, and a server:\n\n")
	perf.WriteAligned(b, r.chainFigures())
	fmt.Fprintf(b, "\nMedian of the rounds (lowest..highest). sdp: a line of nodes. tcp, unix: relays copy between connections\n"+
		"over loopback or Unix sockets. bare: a word, or 64 KiB, from memory to memory; each process polls, yields,\n"+
		"and then sleeps. CPU: of a forwarder for each message, that of 64 KiB in plain copies of it in the same round.\n"+
		"Sleeps, calls: of a forwarder's threads for each message, those of Go's runtime among them.\n"+
		"One plain copy takes %s µs, and one sched_yield %s µs of CPU time.\n", perf.Number(median(r.copies())), perf.Number(median(r.Yield)))
	b.WriteString("\nsdp beside the others, within each round:\n\n")
	perf.WriteAligned(b, r.chainRatios())
	if rows := r.besideTwo(); len(rows) > 1 {
		b.WriteString("\n64 KiB one way beside the same over 2 hops, within each round. CPU: of all processes, for each byte.\n\n")
		perf.WriteAligned(b, rows)
	}
	r.writeStores(b)
	if rows := r.forwarded(); len(rows) > 1 {
		b.WriteString("\nsdp's forwarders, for each frame that one of them sent on:\n\n")
		perf.WriteAligned(b, rows)
		fmt.Fprintf(b, "\nYields: offers of the processor by sched_yield, counted by the nodes, at %s µs each as measured in the same\n"+
			"round. In turn: at what one takes in the bare chain of as many hops, where it lets another process run:\n"+
			"%s. Wake-ups: of goroutines by doorbells. Rests: while others\n"+
			"poll. Doorbells: those for frames.\n"+
			"System calls: of all threads, yields among them, counted apart in the first %d rounds.\n", perf.Number(median(r.Yield)), r.turns(), callRounds)
	}
	if r.NotCounted != "" {
		fmt.Fprintf(b, "Not measured: %s.\n", r.NotCounted)
	}
}

// chain returns nil if the chain was not measured.
func (r *Report) chain(hops int, kind string) *ChainRow {
	for _, row := range r.Chains {
		if row.Hops == hops && row.Kind == kind {
			return row
		}
	}
	return nil
}

// copies returns the times of a plain copy in the rounds of the chains.
func (r *Report) copies() []float64 {
	return r.Chains[0].RoundTrip.each(func(p Passage) float64 { return p.Copy })
}

// turns returns the CPU time of a yield in the bare chains.
func (r *Report) turns() string {
	var list []string
	for _, row := range r.ours() {
		if row.Hops > 1 {
			turn := row.RoundTrip.spread(func(p Passage) float64 { return p.Turn })
			list = append(list, fmt.Sprintf("%s µs over %d", perf.Number(turn.Median), row.Hops))
		}
	}
	return strings.Join(list, ", ")
}

// ours returns the rows of our chains.
func (r *Report) ours() (list []*ChainRow) {
	for _, row := range r.Chains {
		if row.Kind == ours {
			list = append(list, row)
		}
	}
	return list
}

func (r *Report) chainFigures() [][]string {
	rows := [][]string{append([]string{"hops", "test", "unit"}, kinds...)}
	for _, own := range r.ours() {
		figures := []chainFigure{
			{"64 B, to and fro", "µs", perf.RoundTrip, func(t *ChainTest) *perf.Spread { return &t.Spread }},
			{"64 KiB, one way", "GB/s", perf.OneWay, func(t *ChainTest) *perf.Spread { return &t.Spread }},
			{"CPU of 64 B", "µs", perf.RoundTrip, func(t *ChainTest) *perf.Spread { return t.CPU }},
			{"CPU of 64 KiB", "copies", perf.OneWay, func(t *ChainTest) *perf.Spread { return t.Copies }},
			{"sleeps of 64 B", "", perf.RoundTrip, func(t *ChainTest) *perf.Spread { return t.Sleeps }},
			{"sleeps of 64 KiB", "", perf.OneWay, func(t *ChainTest) *perf.Spread { return t.Sleeps }},
			{"calls of 64 B", "", perf.RoundTrip, func(t *ChainTest) *perf.Spread { return t.Calls }},
			{"calls of 64 KiB", "", perf.OneWay, func(t *ChainTest) *perf.Spread { return t.Calls }},
		}
		if own.Hops == 1 {
			figures = figures[:2] // there is no forwarder
		}
		for _, f := range figures {
			row := []string{fmt.Sprint(own.Hops), f.name, f.unit}
			for _, kind := range kinds {
				row = append(row, f.cell(r.chain(own.Hops, kind)))
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// chainFigure is a line of the table.
type chainFigure struct {
	name, unit string
	test       perf.Test
	of         func(*ChainTest) *perf.Spread
}

func (f *chainFigure) cell(row *ChainRow) string { return optional(f.of(row.test(f.test))) }

func spreadText(s perf.Spread) string {
	return fmt.Sprintf("%s (%s..%s)", perf.Number(s.Median), perf.Number(s.Min), perf.Number(s.Max))
}

func (r *Report) chainRatios() [][]string {
	rows := [][]string{{"hops", "test", "against tcp", "against unix", "times bare"}}
	for _, own := range r.ours() {
		row := func(name string, t *ChainTest) {
			rows = append(rows, []string{fmt.Sprint(own.Hops), name, faster(t, tcp), faster(t, unix), spreadText(timesBare(t))})
		}
		row("64 B, to and fro", own.RoundTrip)
		row("64 KiB, one way", own.OneWay)
	}
	return rows
}

func faster(t *ChainTest, kind string) string {
	s := t.TimesFasterThan[kind].Spread
	return fmt.Sprintf("%sx (%s..%s)", perf.Number(s.Median), perf.Number(s.Min), perf.Number(s.Max))
}

// timesBare returns how many times as long as a bare chain our chain takes.
func timesBare(own *ChainTest) perf.Spread {
	r := own.TimesFasterThan[bare].Spread
	return perf.Spread{Median: 1 / r.Median, Min: 1 / r.Max, Max: 1 / r.Min}
}

// besideTwo returns the throughput of our chains and of bare ones over more than 2 hops in parts of
// that over 2, and the CPU time of all processes for each byte in times of that.
func (r *Report) besideTwo() [][]string {
	rows := [][]string{{"hops", "chain", "GB/s", "CPU, times"}}
	for _, row := range r.Chains {
		two := r.chain(2, row.Kind)
		if two == nil || row.Hops <= 2 || row.Kind != ours && row.Kind != bare {
			continue
		}
		part := ratios(row.OneWay, two.OneWay, value)
		times := ratios(row.OneWay, two.OneWay, func(p Passage) float64 { return (p.Forwarders.CPU + p.Ends.CPU) / float64(p.Messages) })
		rate := fmt.Sprintf("%s (%s..%s)", percent(part.Median), percent(part.Min), percent(part.Max))
		rows = append(rows, []string{fmt.Sprint(row.Hops), row.Kind, rate, spreadText(times)})
	}
	return rows
}

// ratios returns the distribution of a figure of a chain divided by that of another one in the
// same round.
func ratios(of, to *ChainTest, figure func(Passage) float64) perf.Spread {
	var list []float64
	for i := range of.Rounds {
		list = append(list, figure(of.Rounds[i])/figure(to.Rounds[i]))
	}
	return perf.SpreadOf(list)
}

// writeStores writes what a round trip between neighbours takes when neither end slept.
func (r *Report) writeStores(b *strings.Builder) {
	own := r.chain(1, ours)
	if own == nil {
		return
	}
	var awake []float64
	for _, p := range own.RoundTrip.Rounds {
		if p.Asleep == 0 {
			awake = append(awake, p.Value)
		}
	}
	fmt.Fprintf(b, "\n1 hop of sdp goes by frames here. In %d of %d rounds of 64 B neither end slept", len(awake), len(own.RoundTrip.Rounds))
	if len(awake) > 0 {
		fmt.Fprintf(b, ";\nthe median of these is %s µs", perf.Number(median(awake)))
	}
	b.WriteString(".\n")
}

// forwarded returns what our forwarders did for each frame.
func (r *Report) forwarded() [][]string {
	rows := [][]string{{"hops", "each frame", "64 B, to and fro", "64 KiB, one way"}}
	for _, own := range r.ours() {
		if own.Hops == 1 {
			continue
		}
		add := func(name string, to, way string) { rows = append(rows, []string{fmt.Sprint(own.Hops), name, to, way}) }
		both := func(name string, of func(*Forwarding) *perf.Spread) {
			add(name, optional(of(own.RoundTrip.Frame)), optional(of(own.OneWay.Frame)))
		}
		both("frames of a message", func(f *Forwarding) *perf.Spread { return &f.Of })
		both("CPU, µs", func(f *Forwarding) *perf.Spread { return &f.CPU })
		both("yields", func(f *Forwarding) *perf.Spread { return &f.Yields })
		both("CPU less yields, µs", func(f *Forwarding) *perf.Spread { return &f.Work })
		both("less those in turn, µs", func(f *Forwarding) *perf.Spread { return &f.WorkInTurn })
		add("that of 64 KiB, copies", "-", spreadText(own.OneWay.Frame.WorkCopies))
		both("CPU of a message, times bare's", func(f *Forwarding) *perf.Spread { return &f.TimesBare })
		both("wake-ups", func(f *Forwarding) *perf.Spread { return &f.Wakes })
		both("rests", func(f *Forwarding) *perf.Spread { return &f.Rests })
		both("sleeps of threads", func(f *Forwarding) *perf.Spread { return &f.Sleeps })
		both("system calls", func(f *Forwarding) *perf.Spread { return f.Calls })
		both("doorbells rung at it", func(f *Forwarding) *perf.Spread { return &f.RungAt })
		both("doorbells rung by it", func(f *Forwarding) *perf.Spread { return &f.RungBy })
		dropped := func(t *ChainTest) string {
			return fmt.Sprint(t.spread(func(p Passage) float64 { return float64(p.Frames.Dropped) }).Max)
		}
		add("dropped in a round, most", dropped(own.RoundTrip), dropped(own.OneWay))
	}
	return rows
}

func optional(s *perf.Spread) string {
	if s == nil {
		return "-"
	}
	return spreadText(*s)
}
