package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// IdleReport is what idle connections cost, in both processes together.
type IdleReport struct {
	Transport   string  `json:"transport"`
	Connections int     `json:"connections"`
	Seconds     float64 `json:"seconds"`
	// CPU is the used part of one processor, in percent.
	CPU float64 `json:"cpu_percent"`
	// Memory is PSS in KiB per connection, compared with no connections.
	Memory float64 `json:"pss_kib_per_connection"`
}

// MeasureIdle opens connections to e and makes one exchange of 64 bytes on each. It
// measures their memory, and then what they cost in d. control is where the same
// process listens on another transport, for its answers. Both processes should have
// done nothing else before.
func MeasureIdle(ctx context.Context, e, control perf.Endpoint, connections int, d time.Duration, dial DialFunc) (*IdleReport, error) {
	c, err := perf.Connect(ctx, control, 1, 1, dial)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	before, err := c.Memory(ctx)
	if err != nil {
		return nil, err
	}
	idle, err := perf.Connect(ctx, e, connections, 64, dial)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", e.Network, err)
	}
	defer idle.Close()
	if err := idle.Echo(ctx, 64); err != nil {
		return nil, fmt.Errorf("%s: %w", e.Network, err)
	}
	after, err := c.Memory(ctx)
	if err != nil {
		return nil, err
	}
	r := &IdleReport{
		Transport: e.Network, Connections: connections, Seconds: d.Seconds(),
		Memory: (float64(after) - float64(before)) / 1024 / float64(connections),
	}
	return r, r.measureCPU(ctx, c, d)
}

// settle is how long after the last exchange the connections count as idle. What
// still wakes up then does so for good.
const settle = time.Second

func (r *IdleReport) measureCPU(ctx context.Context, c *perf.Group, d time.Duration) error {
	if err := sleep(ctx, min(settle, d)); err != nil {
		return err
	}
	before, err := c.CPU(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	if err := sleep(ctx, d); err != nil {
		return err
	}
	took := time.Since(start)
	after, err := c.CPU(ctx)
	r.CPU = 100 * float64(after-before) / float64(took)
	return err
}

func sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// idle measures each Network once, since the machine does not change.
func (r *run) idle(ctx context.Context) ([]Row, error) {
	cells := make([]cell, len(r.Transports))
	var connections int
	for i, t := range r.Transports {
		if _, ok := t.(*Network); !ok {
			cells[i].failed = ErrUnsupported
			continue
		}
		r.progress("idle connections: %s", t.Name())
		report, err := r.Idle(ctx, t.Name())
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if cells[i].failed = err; err == nil {
			connections = report.Connections
			// The two figures of a row of the table use fields of an Outcome.
			cells[i].rounds = []Outcome{{Value: report.CPU, Rate: report.Memory}}
		}
	}
	return r.rows(measurement{item: "idle", rows: []figure{
		{fmt.Sprintf("idle connections, %d: CPU", connections), "%", true, noLimit, value},
		{fmt.Sprintf("idle connections, %d: PSS of each", connections), "KiB", true, noLimit, func(o Outcome) float64 { return o.Rate }},
	}}, cells), nil
}
