package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/perf"
	"github.com/ntbnet/ntbnet/internal/perf/hops"
	"github.com/ntbnet/ntbnet/internal/status"
)

// ringNodes are the node processes of one fabric.
type ringNodes struct {
	fabric string // without options
	nodes  []*measuring
}

// startRing starts the processes and waits for all their links.
func startRing(ctx context.Context, s hops.Shape) (*ringNodes, error) {
	r := &ringNodes{fabric: freshName(s.Topology)}
	for i := 1; i <= s.Nodes; i++ {
		spec := fmt.Sprintf("%s?node=%d&nodes=%d&lanes=%d", r.fabric, i, s.Nodes, s.Lanes)
		if s.Frames {
			spec += "&failover=1"
		}
		n, err := startMeasuring(nodeCommand, spec)
		if err != nil {
			return nil, errors.Join(err, r.Close())
		}
		r.nodes = append(r.nodes, n)
	}
	for i, n := range r.nodes {
		if _, err := n.hear(ctx); err != nil {
			return nil, errors.Join(fmt.Errorf("node%d: %w", i+1, err), r.Close())
		}
	}
	if err := waitForLinks(ctx, r.fabric, s.Nodes); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// stateUp is the state that the fabric reports for a link that works.
const stateUp = "up"

// waitForLinks waits until all nodes of a fabric run and every link is up.
func waitForLinks(ctx context.Context, name string, nodes int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, childStart, fmt.Errorf("%s: links are not up after %v", name, childStart))
	defer cancel()
	for {
		t, err := fabric.ReadTopology(ctx, name)
		if err == nil && len(t.Views) == nodes &&
			!slices.ContainsFunc(t.Wires, func(w status.Link) bool { return w.State != stateUp }) {
			return nil
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// lead is how long before a task begins the nodes get it.
const lead = 5 * time.Millisecond

// Measure implements hops.Ring.
func (r *ringNodes) Measure(ctx context.Context, tasks ...hops.Task) ([]hops.Outcome, error) {
	connect := slices.Clone(tasks)
	for i := range connect {
		connect[i].Duration = 0
	}
	if _, err := r.each(ctx, connect); err != nil {
		return nil, err
	}
	return r.each(ctx, tasks)
}

func (r *ringNodes) each(ctx context.Context, tasks []hops.Task) ([]hops.Outcome, error) {
	outcomes, errs := make([]hops.Outcome, len(tasks)), make([]error, len(tasks))
	begin := time.Now().Add(lead)
	var wg sync.WaitGroup
	for i, t := range tasks {
		wg.Go(func() {
			a, err := r.nodes[t.From-1].ask(ctx, ask{Task: t, Begin: begin})
			if err != nil {
				errs[i] = fmt.Errorf("node%d to node%d: %w", t.From, t.To, err)
			}
			outcomes[i] = a.Outcome
		})
	}
	wg.Wait()
	return outcomes, errors.Join(errs...)
}

// Usage implements hops.Ring.
func (r *ringNodes) Usage(ctx context.Context) ([]hops.Usage, error) {
	list := make([]hops.Usage, len(r.nodes)+1)
	t, err := fabric.ReadTopology(ctx, r.fabric)
	if err != nil {
		return nil, err
	}
	if len(t.Views) != len(r.nodes) {
		return nil, fmt.Errorf("%s: %d of %d nodes tell their counters", r.fabric, len(t.Views), len(r.nodes))
	}
	for _, v := range t.Views {
		u := sent(v)
		if u.CPU, err = perf.ProcessCPU(v.PID); err != nil {
			return nil, err
		}
		list[v.Node] = u
	}
	return list, nil
}

// sent returns what a node has sent in frames.
func sent(v *status.Process) (u hops.Usage) {
	for _, l := range v.Links {
		u.OwnBytes += l.OwnBytes
		u.ForwardedFrames += l.ForwardedFrames
		u.ForwardedBytes += l.ForwardedBytes
	}
	return u
}

// Close implements hops.Ring.
func (r *ringNodes) Close() (err error) {
	for _, n := range r.nodes {
		n.end()
	}
	for i, n := range r.nodes {
		if waitErr := n.wait(); waitErr != nil && err == nil {
			err = fmt.Errorf("node%d: %w", i+1, waitErr)
		}
	}
	return errors.Join(err, removeFabric(r.fabric))
}
