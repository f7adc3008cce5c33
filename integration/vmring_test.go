//go:build linux

package integration

import (
	"fmt"
	"slices"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/pcimodel"
	"github.com/stretchr/testify/require"
)

// circle are machines in a ring, with a bridge from each to the next one, and from the last one to the first.
type circle struct {
	t       *testing.T
	name    string
	nodes   []*side
	bridges []pcimodel.Bridge // the first is on the right of node 1
}

// startCircle starts n machines. Connections go on when a bridge is cut.
func startCircle(t *testing.T, kind bridgeKind, n int) *circle {
	t.Helper()
	s := bridgeSystem(t, kind, nil)
	s.modules = append(s.modules, "ntb_cdev.ko")
	c := &circle{t: t, name: "ring:" + fabrictest.Name(t)}
	for range n {
		c.bridges = append(c.bridges, kind.make())
	}
	for i := range n {
		s.models = []pcimodel.Function{c.bridges[(i+n-1)%n].Functions()[1], c.bridges[i].Functions()[0]}
		c.nodes = append(c.nodes, &side{vm: s.startVM(t, nil, "operator"), node: fmt.Sprint("node ", i+1)})
	}
	for _, v := range c.nodes {
		v.ready()
	}
	for i, v := range c.nodes {
		require.Equal(t, "ready", v.must("start far far %s?node=%d&nodes=%d&failover=1&frame=4096&left=ntb:%s&right=ntb:%s",
			c.name, i+1, n, function(0), function(1)))
	}
	return c
}

// sender is a process that sends from node 1 to node 2, or from node 2 to node 1.
type sender struct {
	*side
	process string
	to      int
	bridge  int // by which it does
}

func (s *sender) send(n int) string { return fmt.Sprintf("ask %s send node%d %d", s.process, s.to, n) }

// carried returns how many bytes have gone over a bridge on the way from node 1 to node 2, or from node 2 to node 1.
func (c *circle) carried(bridge, to int) uint64 {
	side := min(bridge, 1)
	if to == 1 {
		side = 1 - side
	}
	return c.bridges[bridge].Counts()[side].Bytes
}

// uses has a process send, and reports whether that went over its bridge.
func (c *circle) uses(s *sender) bool {
	c.t.Helper()
	const size = 32 << 10
	before := c.carried(s.bridge, s.to)
	require.Contains(c.t, s.must("%s", s.send(size)), "ok ")
	return c.carried(s.bridge, s.to)-before >= size
}

// senders returns node 1's process, which sends over one bridge, and where two machines have two, a process of node 2, which sends
// over the other one. By which bridge a process sends is random.
func (c *circle) senders() []*sender {
	c.t.Helper()
	one := &sender{c.nodes[0], "far", 2, 0}
	if len(c.bridges) > 2 {
		until(c.t, "the shortest way is open", func() bool { return c.uses(one) })
		return []*sender{one}
	}
	until(c.t, "both bridges are up", func() bool {
		one.bridge = 1 - one.bridge
		return c.uses(one)
	})
	two := &sender{c.nodes[1], "other", 1, 1 - one.bridge}
	until(c.t, "a process uses the other bridge", func() bool {
		require.Equal(c.t, "ready", two.must("start other far %s?node=2 client", c.name))
		if c.uses(two) {
			return true
		}
		two.must("end other")
		return false
	})
	return []*sender{one, two}
}

// cutAndMend cuts the bridge by which node 1 sends to node 2, while it does. What has not arrived by then goes the other way
// round, and what others send is not affected. When the bridge is mended, it is used again.
func (c *circle) cutAndMend() {
	c.t.Helper()
	const size, some = 512 << 10, 64 << 10
	all := c.senders()
	before := make([]uint64, len(c.bridges))
	for i := range before {
		before[i] = c.carried(i, 2)
	}
	for _, s := range slices.Backward(all) { // the one whose bridge is cut is last
		was := c.carried(s.bridge, s.to)
		_, err := fmt.Fprintln(s.in, s.send(size))
		require.NoError(c.t, err)
		until(c.t, "bytes go over the bridge", func() bool { return c.carried(s.bridge, s.to)-was >= some })
	}
	first := all[0].bridge
	c.bridges[first].Cut()
	short := c.carried(first, 2) - before[first]
	require.Less(c.t, short, uint64(size), "all was sent before the cut")
	for _, s := range all {
		s.answers(s.send(size))
		c.t.Logf("%d bytes have gone over bridge %d to node %d", c.carried(s.bridge, s.to), s.bridge+1, s.to)
	}
	for i := range c.bridges {
		moved := c.carried(i, 2) - before[i]
		c.t.Logf("%d bytes went over bridge %d to node 2, which node 1 used first: %t", moved, i+1, i == first)
		if i != first {
			require.GreaterOrEqual(c.t, moved, size-short)
		}
	}
	require.False(c.t, c.uses(all[0]))
	c.bridges[first].Mend()
	for _, s := range all {
		until(c.t, "each uses its bridge again", func() bool { return c.uses(s) })
	}
	for _, s := range all[1:] {
		s.must("end %s", s.process)
	}
}

// end ends the processes and the machines.
func (c *circle) end() {
	for _, v := range c.nodes {
		v.must("end far")
		v.end()
	}
}

// Machines are a ring of bridges. Each reaches each. A bridge is cut in the middle of a transfer: nothing is lost, and all goes
// the other way round. Two bridges between two machines are a ring as well, and both carry.
func TestVMBridgeRing(t *testing.T) {
	wantVM(t)
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprintf("%d machines", n), func(t *testing.T) {
			if n > 2 {
				wantMatrix(t)
			}
			c := startCircle(t, bridgeKinds[0], n)
			for i, v := range c.nodes {
				for to := 1; to <= n; to++ {
					if to != i+1 {
						v.does("echo node%d 10", to)
					}
				}
			}
			c.cutAndMend()
			c.end()
		})
	}
}
