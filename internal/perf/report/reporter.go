package report

import (
	"encoding/json"
	"io"
	"sync"

	"github.com/ntbnet/ntbnet/internal/perf/meter"
)

// How a Reporter prints.
const (
	AsText = iota
	AsJSON
	AsStream // a line of JSON for each event
)

// Reporter prints one run, in the order of its methods. They may be called by several goroutines.
type Reporter struct {
	W         io.Writer
	As        int
	Unit      Format
	Host      string // of the server, as the user has named it
	Port      string
	Version   string
	Arguments []string
	Verified  uint64 // bytes each way
	// OnInterval, if set, is called too.
	OnInterval func(*meter.Result, meter.Interval)

	mu   sync.Mutex
	text Text // its error is that of the first write that failed
	doc  JSON
}

func (p *Reporter) event(name string, data any) {
	if p.As != AsStream || p.text.Err != nil {
		return
	}
	p.text.Err = json.NewEncoder(p.W).Encode(struct {
		Event string `json:"event"`
		Data  any    `json:"data"`
	}{name, data})
}

// Start is called when the streams are there.
func (p *Reporter) Start(r *meter.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text.W, p.text.Format = p.W, p.Unit
	p.doc.Start = StartOf(r, p.Host, p.Port, p.Version, p.Arguments, p.Verified)
	p.event("start", p.doc.Start)
	if p.As == AsText {
		p.text.Start(r)
	}
}

// Interval is called for each part of the run.
func (p *Reporter) Interval(r *meter.Result, in meter.Interval) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := IntervalOf(r, in)
	p.event("interval", j)
	switch p.As {
	case AsText:
		p.text.Interval(r, in)
	case AsJSON:
		p.doc.Intervals = append(p.doc.Intervals, j)
	}
	if p.OnInterval != nil {
		p.OnInterval(r, in)
	}
}

// End is called when the run is over; r is nil if it did not begin, and err says why it ended early.
// It returns the error of a write. What it could not write it writes to other.
func (p *Reporter) End(r *meter.Result, err error, other io.Writer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text.W = p.W
	if r != nil {
		p.doc.End = EndOf(r)
	}
	if err != nil {
		p.doc.Error = "error - " + err.Error()
	}
	switch p.As {
	case AsText:
		if r != nil {
			p.text.End(r, err)
		}
	case AsJSON:
		if p.doc.Intervals == nil {
			p.doc.Intervals = []JInterval{}
		}
		enc := json.NewEncoder(p.W)
		enc.SetIndent("", "\t")
		p.text.Err = enc.Encode(p.doc)
	case AsStream:
		if err != nil {
			p.event("error", p.doc.Error)
		}
		p.event("end", p.doc.End)
	}
	if p.text.Err != nil && r != nil {
		rest := Text{W: other, Format: p.Unit}
		rest.End(r, err)
	}
	return p.text.Err
}
