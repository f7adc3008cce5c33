package census

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
)

// ReadTopology asks all nodes of a fabric that run on this machine what they know.
// The caller does not become part of the fabric. The error wraps EHOSTUNREACH if no
// node runs.
func ReadTopology(ctx context.Context, own string) (*status.Fabric, error) {
	s, err := spec.ForTopology(own)
	if err != nil {
		return nil, err
	}
	t, err := readTopology(ctx, s.Kind, s.Name, func(ctx context.Context, node int) (greeting.Cable, error) {
		return greeting.Connect(ctx, s.PlaceOf(node), node, 0)
	})
	if err != nil {
		return nil, err
	}
	t.Waiting = map[int]int{}
	for _, node := range t.Absent {
		if n := shmProcesses(s, node); n > 0 {
			t.Waiting[node] = n
		}
	}
	return t, nil
}

func readTopology(ctx context.Context, kind, name string, connect func(context.Context, int) (greeting.Cable, error)) (*status.Fabric, error) {
	ctx, cancel := context.WithTimeout(ctx, greeting.CheckTimeout)
	defer cancel()
	var views [spec.MaxNodes + 1]*status.Process
	var errs [spec.MaxNodes + 1]error
	var wg sync.WaitGroup
	for node := 1; node <= spec.MaxNodes; node++ {
		wg.Go(func() { views[node], errs[node] = askView(ctx, node, connect) })
	}
	wg.Wait()
	t := &status.Fabric{Fabric: kind + ":" + name, Silent: map[int]string{}}
	for node, v := range views {
		switch {
		case v == nil:
			continue
		case t.Nodes == 0:
			t.Topology, t.Nodes, t.Lanes = v.Topology, v.Nodes, v.Lanes
		case t.Topology != v.Topology || t.Nodes != v.Nodes || t.Lanes != v.Lanes:
			views[node] = nil
			errs[node] = fmt.Errorf("%w: it is of a %s of %d nodes, lanes=%d", greeting.ErrMismatch, v.Topology, v.Nodes, v.Lanes)
			continue
		}
		t.Views = append(t.Views, v)
	}
	if t.Nodes == 0 {
		for _, err := range errs[1:] {
			if err != nil && !isAbsent(err) {
				return nil, err
			}
		}
		return nil, fmt.Errorf("no node of %s runs on this machine: %w", t.Fabric, syscall.EHOSTUNREACH)
	}
	others := otherViews(t)
	for node := 1; node <= spec.MaxNodes; node++ {
		switch {
		case views[node] != nil:
		case others[node] != nil && isAbsent(errs[node]):
			t.Others = append(t.Others, *others[node])
		case errs[node] != nil && !isAbsent(errs[node]):
			t.Silent[node] = errs[node].Error()
		case node <= t.Nodes:
			t.Absent = append(t.Absent, node)
		}
	}
	for w := range spec.Plan(t.Topology, t.Nodes) {
		t.Wires = append(t.Wires, viewOf(w, t, others))
	}
	return t, nil
}

// askView asks the owner of a node's links. It checks the answer as far as this package uses it.
func askView(ctx context.Context, node int, connect func(context.Context, int) (greeting.Cable, error)) (*status.Process, error) {
	c, err := connect(ctx, node)
	if err != nil {
		return nil, err
	}
	v, err := askStatus(ctx, c)
	if err == nil && (v.Node != node || !spec.IsTopology(v.Topology) || v.Nodes < spec.MinNodes || v.Nodes > spec.MaxNodes || node > v.Nodes) {
		return nil, fmt.Errorf("%w: node %d says that it is node %d of a %.8q of %d", greeting.ErrNoGreeting, node, v.Node, v.Topology, v.Nodes)
	}
	return v, err
}

// otherViews returns, by number, what the nodes that answered know of all that run. Of several
// that know of one, the one with the latest link state counts.
func otherViews(t *status.Fabric) map[int]*status.Host {
	all := map[int]*status.Host{}
	for _, v := range t.Views {
		for _, h := range v.Hosts {
			if h.State != status.Up || h.Host < 1 || h.Host > t.Nodes || all[h.Host] != nil && all[h.Host].Epoch >= h.Epoch {
				continue
			}
			o := status.Host{Host: h.Host, State: h.State, Left: h.Left, Right: h.Right, Members: h.Members, Epoch: h.Epoch}
			if t.Topology == spec.TopologyMesh {
				o.Left, o.Right = "", ""
			}
			all[h.Host] = &o
		}
	}
	return all
}

// viewOf merges what is known of the two ends of a wire.
func viewOf(w spec.Edge, t *status.Fabric, others map[int]*status.Host) status.Link {
	v := status.Link{Wire: w.Number, From: w.A, To: w.B, State: status.Up}
	for _, end := range []int{w.A, w.B} {
		state := status.Absent
		switch {
		case t.View(end) != nil:
			state = status.Down
			if l := t.View(end).Link(w.Number); l != nil {
				if state = l.State; l.Error != "" {
					v.Error = fmt.Sprintf("%s: %s", spec.NodeName(end), l.Error)
				}
			}
		case others[end] == nil:
		case t.View(w.Other(end)) != nil:
			state = v.State // the end of this machine knows
		default:
			state = sideOfHost(others[end], w.From(t.Topology, end).Side)
		}
		if v.State == status.Up || state == status.Absent {
			v.State = state
		}
	}
	return v
}

// sideOfHost returns the state of a link of a host.
func sideOfHost(h *status.Host, side spec.Side) string {
	state := map[spec.Side]string{spec.Left: h.Left, spec.Right: h.Right}[side]
	return cmp.Or(state, status.Unknown)
}

// isAbsent reports whether an error means that a node does not run.
func isAbsent(err error) bool {
	return errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ECONNREFUSED)
}

// shmProcesses returns how many processes of a node run on this machine.
func shmProcesses(spec *spec.Spec, node int) int {
	dir, err := hostdir.Open(spec.PlaceOf(node), false)
	if err != nil {
		return 0
	}
	defer dir.Close()
	all, _ := dir.Processes()
	return len(all)
}
