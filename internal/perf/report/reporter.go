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

	mu        sync.Mutex
	text      Text // its error is that of the first write that failed
	start     object
	intervals []object
}

func (p *Reporter) event(name string, data any) {
	if p.As == AsStream && p.text.Err == nil {
		p.text.Err = json.NewEncoder(p.W).Encode(object{"event": name, "data": data})
	}
}

// Start is called when the streams are there.
func (p *Reporter) Start(r *meter.Result) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text.W, p.text.Format = p.W, p.Unit
	p.start = startOf(r, p)
	p.event("start", p.start)
	if p.As == AsText {
		p.text.Start(r)
	}
}

// Interval is called for each part of the run.
func (p *Reporter) Interval(r *meter.Result, in meter.Interval) {
	p.mu.Lock()
	defer p.mu.Unlock()
	j := intervalOf(r, in)
	p.event("interval", j)
	p.intervals = append(p.intervals, j)
	if p.As == AsText {
		p.text.Interval(r, in)
	}
}

// End is called when the run is over; r is nil if it did not begin, and err says why it ended early.
// It returns the error of a write. What it could not write it writes to other.
func (p *Reporter) End(r *meter.Result, err error, other io.Writer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.text.W, p.text.Format = p.W, p.Unit
	doc := object{"start": p.start, "intervals": append([]object{}, p.intervals...), "end": object{}}
	if r != nil {
		doc["end"] = endOf(r)
	}
	if err != nil {
		doc["error"] = "error - " + err.Error()
		p.event("error", doc["error"])
	}
	p.event("end", doc["end"])
	switch {
	case p.As == AsJSON:
		p.text.Err = WriteJSON(p.W, doc)
	case p.As == AsText && r != nil:
		p.text.End(r, err)
	}
	if p.text.Err != nil && r != nil {
		rest := Text{W: other, Format: p.Unit}
		rest.End(r, err)
	}
	return p.text.Err
}
