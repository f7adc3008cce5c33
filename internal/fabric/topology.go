package fabric

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/link"
)

// Topology is a fabric of several hosts as the nodes on this machine describe it,
// at about the same time.
type Topology struct {
	Fabric   string `json:"fabric"` // such as "ring:NAME"
	Topology string `json:"topology"`
	Nodes    int    `json:"nodes"`
	Lanes    int    `json:"lanes"`
	// Views are those of the nodes that answered, in the order of their numbers.
	Views []*NodeView `json:"views"`
	// Others are the nodes that run on other machines, as those of this one have learnt.
	Others []OtherView `json:"others,omitempty"`
	// Absent are the nodes that do not run, as far as those of this machine know.
	Absent []int `json:"absent,omitempty"`
	// Waiting are the absent nodes that have processes which need an owner of the
	// links, and the number of these processes.
	Waiting map[int]int `json:"waiting,omitempty"`
	// Silent are the nodes that run and gave no usable answer, with the reason.
	Silent map[int]string `json:"silent,omitempty"`
	// Wires are all links that the fabric should have.
	Wires []WireView `json:"wires"`
}

// OtherView is a node of another machine, which nobody here can ask. Its link state
// has come over the links.
type OtherView struct {
	Node int `json:"node"`
	// Links are the states of its links by side. They are empty in a mesh.
	Links map[Side]string `json:"links,omitempty"`
	// Members is the number of its processes besides the one that owns its links.
	Members int `json:"members"`
	// Epoch is the number of its link state.
	Epoch uint64 `json:"epoch"`
}

// WireView is a link as described by its ends, or by one if the other is of another machine.
type WireView struct {
	Wire int `json:"wire"`
	A    int `json:"a"`
	B    int `json:"b"`
	// State is "up" if both ends say so, and "absent" if a node does not run.
	// Otherwise it is what an end says that does not say "up". It is "unknown" in a mesh,
	// where both ends are of other machines.
	State string `json:"state"`
	Error string `json:"error,omitempty"`
	// ForwardedAB and ForwardedBA count the bytes of other nodes that A sent to B
	// over the link, and B to A, since it came up.
	ForwardedAB uint64 `json:"forwarded_ab_bytes"`
	ForwardedBA uint64 `json:"forwarded_ba_bytes"`
	// OwnAB and OwnBA count the bytes of their own that A and B sent over it in
	// frames.
	OwnAB uint64 `json:"own_ab_bytes"`
	OwnBA uint64 `json:"own_ba_bytes"`
}

// TopologyName parses the kind and name of a fabric of several hosts from a spec.
// It ignores the options, so node and nodes may be left out. The name may be the path of a
// directory.
func TopologyName(spec string) (kind, name string, err error) {
	rest, _, _ := strings.Cut(spec, "?")
	kind, name, _ = strings.Cut(rest, ":")
	if kind == bridgeKind {
		s := &Spec{}
		if err := s.nameBridge(name); err != nil {
			return "", "", fmt.Errorf("fabric %q: %w", spec, err)
		}
		return s.Kind, s.Name, nil
	}
	if !isTopology(kind) {
		return "", "", fmt.Errorf("fabric %q: want one of several hosts, ring:NAME, line:NAME or mesh:NAME: %w", spec, syscall.EINVAL)
	}
	if isPath(name) {
		name, err = checkPath(name)
		return kind, name, err
	}
	return kind, name, checkName(name)
}

// topologySpec returns as much of a spec of several hosts as it takes to find them.
func topologySpec(text string) (*Spec, error) {
	kind, name, err := TopologyName(text)
	if err != nil {
		return nil, err
	}
	spec := &Spec{Kind: kind, Name: name, Backend: "shm"}
	if !isPath(name) {
		return spec, nil
	}
	_, query, _ := strings.Cut(text, "?")
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("fabric %q: %v: %w", text, err, syscall.EINVAL)
	}
	for _, option := range []string{"group", "owner"} {
		if !values.Has(option) {
			continue
		}
		if err := spec.set(option, values.Get(option)); err != nil {
			return nil, fmt.Errorf("fabric %q: option %s: %v: %w", text, option, err, syscall.EINVAL)
		}
	}
	return spec, nil
}

// ReadTopology asks all nodes of a fabric that run on this machine what they know.
// The caller does not become part of the fabric. The error wraps EHOSTUNREACH if no
// node runs.
func ReadTopology(ctx context.Context, spec string) (*Topology, error) {
	s, err := topologySpec(spec)
	if err != nil {
		return nil, err
	}
	t, err := readTopology(ctx, s.Kind, s.Name, func(ctx context.Context, node int) (cable, error) {
		return shmConnect(ctx, s, node, 0)
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

func readTopology(ctx context.Context, kind, name string, connect func(context.Context, int) (cable, error)) (*Topology, error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	var views [maxNodes + 1]*NodeView
	var errs [maxNodes + 1]error
	var wg sync.WaitGroup
	for node := 1; node <= maxNodes; node++ {
		wg.Go(func() { views[node], errs[node] = askView(ctx, node, connect) })
	}
	wg.Wait()
	t := &Topology{Fabric: kind + ":" + name, Silent: map[int]string{}}
	for node, v := range views {
		switch {
		case v == nil:
			continue
		case t.Nodes == 0:
			t.Topology, t.Nodes, t.Lanes = v.Topology, v.Nodes, v.Lanes
		case t.Topology != v.Topology || t.Nodes != v.Nodes || t.Lanes != v.Lanes:
			views[node] = nil
			errs[node] = fmt.Errorf("%w: it is of a %s of %d nodes, lanes=%d", ErrMismatch, v.Topology, v.Nodes, v.Lanes)
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
	for node := 1; node <= maxNodes; node++ {
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
	for w := range wires(t.Topology, t.Nodes) {
		t.Wires = append(t.Wires, w.view(t, &views, others))
	}
	return t, nil
}

// askView asks one node. It checks the answer as far as this package uses it.
func askView(ctx context.Context, node int, connect func(context.Context, int) (cable, error)) (*NodeView, error) {
	c, err := connect(ctx, node)
	if err != nil {
		return nil, err
	}
	answer, release, err := ask(ctx, c, &greeting{Version: greetingVersion, Ring: link.Version, Want: wantTopology})
	if err != nil {
		return nil, err
	}
	release()
	c.Close()
	v := answer.Snapshot
	switch {
	case answer.Version != greetingVersion:
		return nil, fmt.Errorf("%w: node %d greets in version %d, this program in %d", ErrMismatch, node, answer.Version, greetingVersion)
	case v == nil:
		return nil, fmt.Errorf("%w: node %d tells nothing: %.200q", errGreeting, node, answer.Refused)
	case v.Node != node || !isTopology(v.Topology) || v.Nodes < minNodes || v.Nodes > maxNodes || node > v.Nodes:
		return nil, fmt.Errorf("%w: node %d says that it is node %d of a %.8q of %d", errGreeting, node, v.Node, v.Topology, v.Nodes)
	}
	return v, nil
}

// otherViews returns, by number, what the nodes that answered know of all that run. Of several
// that know of one, the one with the latest link state counts.
func otherViews(t *Topology) map[int]*OtherView {
	all := map[int]*OtherView{}
	for _, v := range t.Views {
		if v.Ring == nil {
			continue
		}
		for _, h := range v.Ring.Hosts {
			if h.State != linkUp || h.Host < 1 || h.Host > t.Nodes || all[h.Host] != nil && all[h.Host].Epoch >= h.Epoch {
				continue
			}
			o := &OtherView{Node: h.Host, Members: len(h.Members), Epoch: h.Epoch}
			if t.Topology != topologyMesh {
				o.Links = map[Side]string{Left: h.Left, Right: h.Right}
			}
			all[h.Host] = o
		}
	}
	return all
}

// view merges what is known of the two ends of a wire.
func (w wire) view(t *Topology, views *[maxNodes + 1]*NodeView, others map[int]*OtherView) WireView {
	v := WireView{Wire: w.number, A: w.a, B: w.b, State: linkUp}
	for _, end := range []int{w.a, w.b} {
		state := linkAbsent
		switch {
		case views[end] != nil:
			state = v.end(views[end])
		case others[end] == nil:
		case views[w.other(end)] != nil:
			state = v.State // the end of this machine knows
		default:
			state = others[end].link(w.from(t.Topology, end).Side)
		}
		if v.State == linkUp || state == linkAbsent {
			v.State = state
		}
	}
	return v
}

// link returns the state of a link of the node.
func (o *OtherView) link(side Side) string {
	if state, ok := o.Links[side]; ok {
		return state
	}
	return linkUnknown
}

// end adds what a node says of its end of the wire, and returns the state.
func (v *WireView) end(node *NodeView) (state string) {
	own, forwarded := &v.OwnAB, &v.ForwardedAB
	if node.Node == v.B {
		own, forwarded = &v.OwnBA, &v.ForwardedBA
	}
	state = linkDown
	for _, l := range node.Links {
		if l.Wire != v.Wire {
			continue
		}
		state = l.State
		if l.Error != "" {
			v.Error = fmt.Sprintf("%s: %s", nodeName(node.Node), l.Error)
		}
		*own, *forwarded = l.OwnBytes, l.ForwardedBytes
	}
	return state
}
