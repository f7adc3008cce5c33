package fabric

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/stretchr/testify/require"
)

// look reads the topology of a fabric of some backend.
func look(ctx context.Context, backend, name string) (*status.Fabric, error) {
	if backend == "shm" {
		return ReadTopology(ctx, "ring:"+name+"?nodes=99")
	}
	hub := namedHub("ring:" + name)
	return readTopology(ctx, "ring", name, func(ctx context.Context, node int) (cable, error) { return hub.connect(ctx, node, 0) })
}

func TestTopologyIsWhatTheNodesThatRunTell(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		name := ownName(t)
		_, err := look(t.Context(), backend, name)
		require.ErrorIs(t, err, syscall.EHOSTUNREACH)
		plan := "ring:" + name + "?nodes=4"
		a, b, d := mustNode(t, backend, plan, 1), mustNode(t, backend, plan, 2), mustNode(t, backend, plan, 4)
		for _, f := range []*Fabric{b, d} {
			_, err := a.Peer(t.Context(), f.Node().ID())
			require.NoError(t, err)
			_, err = f.Peer(t.Context(), a.Node().ID())
			require.NoError(t, err)
		}
		top, err := look(t.Context(), backend, name)
		require.NoError(t, err)
		require.Equal(t, "ring:"+name, top.Fabric)
		require.Equal(t, []int{3}, top.Absent)
		require.Empty(t, top.Silent)
		require.Len(t, top.Views, 3)
		var states []string
		for _, w := range top.Wires {
			states = append(states, fmt.Sprintf("%d-%d %s", w.From, w.To, w.State))
		}
		require.Equal(t, []string{"1-2 up", "2-3 absent", "3-4 absent", "4-1 up"}, states)
		require.Equal(t, "right", top.Views[0].Links[0].Direction)
		require.Equal(t, "left", top.Views[0].Links[1].Direction)

		// It is the same as JSON.
		text, err := json.Marshal(top)
		require.NoError(t, err)
		var again status.Fabric
		require.NoError(t, json.Unmarshal(text, &again))
		require.Equal(t, top.Wires, again.Wires)
		require.Equal(t, top.Views, again.Views)
	})
}

func TestNamesOfTopologies(t *testing.T) {
	kind, name, err := spec.TopologyName("line:x?node=77&bad=%zz")
	require.NoError(t, err)
	require.Equal(t, "line x", kind+" "+name)
	for _, bad := range []string{"", "shm:x", "mem:x", "ring:", "ring:a/b", "ring"} {
		_, _, err := spec.TopologyName(bad)
		require.ErrorIs(t, err, syscall.EINVAL, bad)
	}
}

// pretend is a node that answers with a view of the test's own making.
func pretend(t *testing.T, hub *MemHosts, node int, view *status.Process) {
	t.Helper()
	s, err := hub.open(node, true)
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := s.accept()
			if err != nil {
				return
			}
			if _, err := readGreeting(c, maxGreeting); err == nil {
				_ = writeGreeting(c, &greeting{Version: greetingVersion, Ring: link.Version, Status: view})
			}
			c.Close()
		}
	}()
	t.Cleanup(func() { s.close(); <-done })
}

func TestAViewThatCannotBeIsNotBelieved(t *testing.T) {
	good := func(node int) *status.Process {
		return &status.Process{Node: node, Topology: "ring", Nodes: 5, Lanes: 1}
	}
	for _, bad := range []*status.Process{
		nil,
		{},
		{Node: 1, Topology: "ring", Nodes: 5, Lanes: 1},
		{Node: 2, Topology: "star", Nodes: 5, Lanes: 1},
		{Node: 2, Topology: "ring", Nodes: 1 << 40, Lanes: 1},
		{Node: 2, Topology: "ring", Nodes: -5, Lanes: 1},
		{Node: 2, Topology: "ring", Nodes: 6, Lanes: 1},
		{Node: 2, Topology: "mesh", Nodes: 5, Lanes: 1},
	} {
		t.Run(fmt.Sprintf("%+v", bad), func(t *testing.T) {
			hub := NewMemHosts(nil)
			pretend(t, hub, 1, good(1))
			pretend(t, hub, 2, bad)
			top, err := readTopology(t.Context(), "ring", "x", func(ctx context.Context, node int) (cable, error) { return hub.connect(ctx, node, 0) })
			require.NoError(t, err)
			require.Len(t, top.Views, 1)
			require.Contains(t, top.Silent, 2)
			require.False(t, slices.Contains(top.Absent, 2))
			require.Len(t, top.Wires, 5)
		})
	}
}

// Nodes of other machines cannot be asked. What is known of them comes from the link states that the
// nodes here have, of which the latest count.
func TestTopologyOfOtherMachines(t *testing.T) {
	host := func(n int, epoch uint64, left, right string) status.Host {
		return status.Host{Host: n, State: "up", Left: left, Right: right, Epoch: epoch, Members: make([]int, n%8)}
	}
	node := func(n int, kind string, hosts ...status.Host) *status.Process {
		v := &status.Process{Node: n, Topology: kind, Nodes: 5, Lanes: 1, Hosts: hosts}
		for w := range spec.Plan(kind, 5) {
			if w.Other(n) != 0 {
				v.Links = append(v.Links, status.Link{Wire: w.Number, To: w.Other(n), State: linkUp})
			}
		}
		return v
	}
	read := func(t *testing.T, kind string, views ...*status.Process) (*status.Fabric, string) {
		hub := NewMemHosts(nil)
		for _, v := range views {
			pretend(t, hub, v.Node, v)
		}
		top, err := readTopology(t.Context(), kind, "x", func(ctx context.Context, node int) (cable, error) { return hub.connect(ctx, node, 0) })
		require.NoError(t, err)
		var states string
		for _, w := range top.Wires {
			states += fmt.Sprintf("%d-%d %s ", w.From, w.To, w.State)
		}
		return top, states
	}
	gone := host(5, 9, "up", "up")
	gone.State = "unreachable"
	t.Run("line", func(t *testing.T) {
		top, states := read(t, "line",
			node(1, "line", host(2, 1, "up", "up"), host(3, 3, "up", "down"), host(4, 1, "up", "up")),
			node(2, "line", host(1, 1, "none", "up"), host(3, 2, "up", "up"), host(4, 7, "down", "up"), gone))
		require.Equal(t, []status.Host{
			{Host: 3, State: "up", Members: make([]int, 3), Epoch: 3, Left: "up", Right: "down"},
			{Host: 4, State: "up", Members: make([]int, 4), Epoch: 7, Left: "down", Right: "up"},
		}, top.Others)
		require.Equal(t, []int{5}, top.Absent)
		require.Equal(t, "1-2 up 2-3 up 3-4 down 4-5 absent ", states)
	})
	t.Run("mesh", func(t *testing.T) {
		_, states := read(t, "mesh", node(1, "mesh", host(2, 0, "", ""), host(3, 0, "", "")))
		require.Equal(t, "1-2 up 1-3 up 1-4 absent 1-5 absent 2-3 unknown 2-4 absent 2-5 absent 3-4 absent 3-5 absent 4-5 absent ", states)
	})
	t.Run("hosts that cannot be", func(t *testing.T) {
		top, _ := read(t, "ring", node(1, "ring", host(0, 1, "", ""), host(6, 1, "", ""), host(1<<20, 1, "", ""), host(2, 1, "a", "b")))
		require.Len(t, top.Others, 1)
		require.Equal(t, []int{3, 4, 5}, top.Absent)
	})
}
