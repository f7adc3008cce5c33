package census

import (
	"context"
	"fmt"
	"net"
	"slices"
	"sync"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/stretchr/testify/require"
)

// pipe is a cable within this process.
type pipe struct{ net.Conn }

func (pipe) Peer() (hostdir.Peer, error) { return hostdir.Self(), nil }
func (pipe) TakeFiles() error            { return nil }

// pretend returns what connects to nodes that answer with views of the test's own making.
func pretend(t *testing.T, views map[int]*status.Process) func(context.Context, int) (greeting.Cable, error) {
	var answers sync.WaitGroup
	t.Cleanup(answers.Wait)
	return func(_ context.Context, node int) (greeting.Cable, error) {
		view, ok := views[node]
		if !ok {
			return nil, syscall.EHOSTUNREACH
		}
		near, far := net.Pipe()
		answers.Go(func() {
			defer far.Close()
			if _, err := greeting.Read(far, greeting.MaxMessage); err == nil {
				_ = greeting.Write(far, &greeting.Message{Version: greeting.Version, Ring: link.Version, Status: view})
			}
		})
		return pipe{near}, nil
	}
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
			top, err := readTopology(t.Context(), "ring", "x", pretend(t, map[int]*status.Process{1: good(1), 2: bad}))
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
				v.Links = append(v.Links, status.Link{Wire: w.Number, To: w.Other(n), State: status.Up})
			}
		}
		return v
	}
	read := func(t *testing.T, kind string, views ...*status.Process) (*status.Fabric, string) {
		nodes := map[int]*status.Process{}
		for _, v := range views {
			nodes[v.Node] = v
		}
		top, err := readTopology(t.Context(), kind, "x", pretend(t, nodes))
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
