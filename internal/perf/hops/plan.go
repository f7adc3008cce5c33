package hops

import (
	"context"
	"fmt"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// Sizes of messages, in bytes.
const (
	small = 64
	large = 64 << 10
)

// Plan is what Run does.
type Plan struct {
	// Nodes, Hops and Lanes are the matrix. Combinations that a ring does not have
	// are left out: the way to a node is never longer than half of the ring. Without Nodes
	// no ring is measured.
	Nodes, Hops, Lanes []int
	// Rounds is how often each figure is measured, at least 1.
	Rounds int
	// Duration is how long a figure is measured in a round. Warm-up and samples
	// take a third of it on top.
	Duration time.Duration
	// Budget, if not nil, limits the time of Run by leaving rounds out.
	Budget *perf.Budget
	// Start starts a ring. All its links are up when it returns.
	Start func(context.Context, Shape) (Ring, error)
	// Forward measures the work of forwarding a frame of size bytes, and of a plain
	// copy of as many bytes, n times each.
	Forward func(size, n int) (forwarded, copied time.Duration, err error)
	// StartChain, if not nil, starts a chain of a kind, "sdp", "tcp", "unix" or "bare". Chains
	// are measured over each number of Hops.
	StartChain func(ctx context.Context, kind string, hops int) (Chain, error)
	// Yield measures the CPU time of one sched_yield, in microseconds. It is called if chains
	// are measured.
	Yield func() (float64, error)
	// Progress, if not nil, is called with a description of what begins.
	Progress func(what string)
}

// Shape describes a ring.
type Shape struct {
	Topology string // "ring" or "line"
	Nodes    int
	Lanes    int
	// Frames makes neighbours use frames, as all other nodes do, rather than
	// stores.
	Frames bool
}

// String returns a short form, for progress and errors.
func (s Shape) String() string {
	return fmt.Sprintf("%s, nodes=%d, lanes=%d", s.Topology, s.Nodes, s.Lanes)
}

// Task is something to measure on a connection between two nodes.
type Task struct {
	From, To int // numbers of nodes
	Test     perf.Test
	Size     int // bytes of a message, at most 64 KiB
	Duration time.Duration
}

// Outcome is the result of a task.
type Outcome struct {
	// Value is that of [perf.Figures].
	Value float64
	// P50 and P99 are of single round trips, in microseconds.
	P50, P99 float64
	// Messages and Sleeps are those of [perf.Figures].
	Messages int
	Sleeps   uint64
}

// Usage is what a node has used and sent since it started.
type Usage struct {
	CPU time.Duration // of the process
	// Sent over its links in frames, of its own and of other nodes.
	OwnBytes, ForwardedFrames, ForwardedBytes uint64
}

// Since returns the difference to an earlier Usage.
func (u Usage) Since(before Usage) Usage {
	return Usage{
		CPU: u.CPU - before.CPU, OwnBytes: u.OwnBytes - before.OwnBytes,
		ForwardedFrames: u.ForwardedFrames - before.ForwardedFrames, ForwardedBytes: u.ForwardedBytes - before.ForwardedBytes,
	}
}

// Ring is a ring of node processes.
type Ring interface {
	// Measure carries out tasks at the same time, and returns their outcomes in the
	// same order. No two have the same From.
	Measure(ctx context.Context, tasks ...Task) ([]Outcome, error)
	// Usage returns the usage of each node, that of node i at index i. It may be
	// called during Measure.
	Usage(ctx context.Context) ([]Usage, error)
	// Close ends all processes.
	Close() error
}

func (p *Plan) progress(format string, args ...any) {
	if p.Progress != nil {
		p.Progress(fmt.Sprintf(format, args...))
	}
}

// hops returns the numbers of hops in the plan that a ring of n nodes has.
func (p *Plan) hops(n int) (list []int) {
	for _, h := range p.Hops {
		if h <= n/2 {
			list = append(list, h)
		}
	}
	return list
}
