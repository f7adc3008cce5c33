package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/ntbnet/ntbnet/internal/status"
)

// traffic is what top prints: the ends of connections, the busiest first.
type traffic struct {
	Interval    float64 `json:"interval_s"` // of the rates
	Connections []flow  `json:"connections"`
	Silent      int     `json:"silent,omitempty"` // processes that do not answer
}

// flow is an end of a connection, and what went over it a second.
type flow struct {
	Directory string  `json:"directory"`
	Process   int     `json:"process"`
	PID       int     `json:"pid"`
	User      string  `json:"user"`
	ReadRate  float64 `json:"read_bytes_per_s"`
	WriteRate float64 `json:"written_bytes_per_s"`
	Inline    float64 `json:"inline_bytes_per_s"`
	MMIO      float64 `json:"mmio_bytes_per_s"`
	DMA       float64 `json:"dma_bytes_per_s"`
	Parks     float64 `json:"parks_per_s"` // waits that slept, for data and for room

	Total status.Connection `json:"total"` // since the connection began
	peer  string
}

// screen moves to the first line of a terminal and erases what is below.
const screen = "\x1b[H\x1b[J"

// top shows connections and their rates, on a terminal until it is interrupted.
func top(ctx context.Context, c *command, args []string, out io.Writer) error {
	fs := c.flagSet(out, "\nEach end of a connection is a line: the process, the address of its end, the\nother end, bytes read and written a second, the path of most bytes written, and\nhow often a second it slept for data or room.\n")
	name := fs.String("fabric", "", "one `FABRIC` only (default as in ntbnet ls)")
	interval := fs.Duration("interval", time.Second, "between two looks, 10ms to 1h")
	count := fs.Int("count", 0, "end after `N` tables (default 1, on a terminal none)")
	rows := fs.Int("rows", 20, "most lines of a table on a terminal")
	asJSON := fs.Bool("json", false, "print JSON, with all ends")
	if err := parse(fs, args, out); err != nil {
		return err
	}
	if *interval < 10*time.Millisecond || *interval > time.Hour {
		return badInputf("--interval %v: want 10ms to 1h", *interval)
	}
	if *count < 0 || *rows < 1 {
		return badInputf("--count and --rows: want 1 or more")
	}
	live := onTerminal(out) != io.Discard && !*asJSON
	if *count == 0 && !live {
		*count = 1
	}
	before, err := readFabrics(ctx, *name)
	for _, d := range before {
		if *name != "" && d.Error != "" {
			return errors.New(d.Error)
		}
	}
	for last, n := time.Now(), 0; err == nil; n++ {
		select {
		case <-time.After(*interval):
		case <-ctx.Done():
			return nil
		}
		var now []*status.Directory
		if now, err = readFabrics(ctx, *name); err != nil || ctx.Err() != nil {
			break
		}
		t := compare(before, now, time.Since(last))
		before, last = now, time.Now()
		switch {
		case *asJSON:
			err = writeJSON(out, t)
		case live:
			err = t.table(out, screen, *rows)
		default:
			err = t.table(out, "", len(t.Connections))
		}
		if n+1 == *count {
			break
		}
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// endOf names an end of a connection.
type endOf struct {
	directory            string
	process, node, other int
	local, remote        string
}

// compare returns what went over the connections between two looks.
func compare(before, now []*status.Directory, took time.Duration) *traffic {
	t := &traffic{Interval: took.Seconds(), Connections: []flow{}}
	old := map[endOf]status.Connection{}
	each := func(all []*status.Directory, do func(d *status.Directory, p *status.Process, c status.Connection, end endOf)) {
		for _, d := range all {
			for _, p := range d.Processes {
				for _, c := range p.Connections {
					do(d, p, c, endOf{d.Directory, p.Process, c.Node, c.Process, c.Local, c.Remote})
				}
			}
		}
	}
	each(before, func(_ *status.Directory, _ *status.Process, c status.Connection, end endOf) { old[end] = c })
	each(now, func(d *status.Directory, p *status.Process, c status.Connection, end endOf) {
		f := flow{Directory: d.Directory, Process: p.Process, PID: p.PID, User: p.User, Total: c, peer: peer(d, c.Node, c.Process)}
		if was, ok := old[end]; ok {
			rate := func(a, b uint64) float64 { return max(float64(b)-float64(a), 0) / took.Seconds() }
			f.ReadRate, f.Inline, f.MMIO, f.DMA = rate(was.Read, c.Read), rate(was.Inline, c.Inline), rate(was.MMIO, c.MMIO), rate(was.DMA, c.DMA)
			f.WriteRate, f.Parks = f.Inline+f.MMIO+f.DMA, rate(was.ReadWaits+was.RoomWaits, c.ReadWaits+c.RoomWaits)
		}
		t.Connections = append(t.Connections, f)
	})
	for _, d := range now {
		for _, p := range d.Processes {
			if p.Error != "" {
				t.Silent++
			}
		}
	}
	slices.SortStableFunc(t.Connections, func(a, b flow) int { return cmp.Compare(b.ReadRate+b.WriteRate, a.ReadRate+a.WriteRate) })
	return t
}

// path returns the path of most bytes written.
func (f *flow) path() string {
	switch most := max(f.Inline, f.MMIO, f.DMA); most {
	case 0:
		return "-"
	case f.Inline:
		return "inline"
	case f.MMIO:
		return "stores"
	}
	return "DMA"
}

// table writes at most so many lines of ends.
func (t *traffic) table(out io.Writer, head string, rows int) error {
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "pid\tlocal\tpeer\tread/s\twritten/s\tpath\tsleeps/s")
	ends, in, written := 0, 0.0, 0.0
	for i, f := range t.Connections {
		ends, in, written = ends+f.Total.Count, in+f.ReadRate, written+f.WriteRate
		if i >= rows {
			continue
		}
		local, remote := f.Total.Local, f.peer+" "+f.Total.Remote
		if local == "" { // of another user
			fmt.Fprintf(w, "%d\t%d connections\t%s\t-\t-\t-\t-\n", f.PID, f.Total.Count, f.peer)
			continue
		}
		fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%s\t%s\t%.0f\n", f.PID, oneLine(local), oneLine(remote), amount(uint64(f.ReadRate)), amount(uint64(f.WriteRate)), f.path(), f.Parks)
	}
	w.Flush()
	fmt.Fprintf(&b, "%d ends: %s read, %s written a second", ends, amount(uint64(in)), amount(uint64(written)))
	if t.Silent > 0 {
		fmt.Fprintf(&b, "; processes that do not answer: %d (ntbnet ls has the reasons)", t.Silent)
	}
	_, err := fmt.Fprintln(out, head+b.String())
	return err
}
