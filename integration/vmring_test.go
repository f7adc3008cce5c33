//go:build linux

package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ntbnet/ntbnet/internal/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/pcimodel"
	"github.com/stretchr/testify/require"
)

// circle are machines in a ring, with a bridge from each to the next one, and from the last one to the first.
type circle struct {
	t       *testing.T
	nodes   []*vm
	bridges []pcimodel.Bridge // the first is on the right of node 1
}

// startCircle starts n machines. Connections go on when a bridge is cut.
func startCircle(t *testing.T, kind bridgeKind, n int) *circle {
	t.Helper()
	s := bridgeSystem(t, kind, nil)
	s.modules = append(s.modules, "ntb_cdev.ko")
	c := &circle{t: t}
	for range n {
		c.bridges = append(c.bridges, kind.make())
	}
	for i := range n {
		s.models = []pcimodel.Function{c.bridges[(i+n-1)%n].Functions()[1], c.bridges[i].Functions()[0]}
		c.nodes = append(c.nodes, s.startVM(t, nil, "far", fmt.Sprintf("ring:%s?node=%d&nodes=%d&failover=1&frame=4096&left=ntb:%s&right=ntb:%s",
			fabrictest.Name(t), i+1, n, function(0), function(1))))
	}
	for _, v := range c.nodes {
		v.ready()
	}
	return c
}

// carried returns how many bytes have gone over a bridge in one direction, by the side that has sent them.
func (c *circle) carried(bridge, side int) uint64 { return c.bridges[bridge].Counts()[side].Bytes }

// sendsBy has node 1 send to node 2, and reports whether that went over the bridge between them.
func (c *circle) sendsBy() bool {
	const size = 32 << 10
	before := c.carried(0, 0)
	does(c.nodes[0].peer, "node 1", fmt.Sprintf("send node2 %d", size))
	return c.carried(0, 0)-before >= size
}

// cutAndMend cuts the first bridge while node 1 sends to node 2. What has not arrived by then goes the other way round. When the
// bridge is mended, it is used again.
func (c *circle) cutAndMend() {
	c.t.Helper()
	const size, some = 512 << 10, 64 << 10
	until(c.t, "the shortest way is open", c.sendsBy)
	before := make([]uint64, len(c.bridges))
	for i := range before {
		before[i] = c.carried(i, min(i, 1))
	}
	_, err := fmt.Fprintf(c.nodes[0].in, "send node2 %d\n", size)
	require.NoError(c.t, err)
	until(c.t, "bytes go over the bridge", func() bool { return c.carried(0, 0)-before[0] >= some })
	c.bridges[0].Cut()
	answer := c.nodes[0].readLine()
	require.True(c.t, strings.HasPrefix(answer, "ok "), answer)
	short := c.carried(0, 0) - before[0]
	c.t.Logf("node 1, whose bridge to node 2 was cut: %s; %d bytes went over it", answer, short)
	require.Less(c.t, short, uint64(size), "all was sent before the cut")
	for i := 1; i < len(c.bridges); i++ {
		long := c.carried(i, 1) - before[i]
		c.t.Logf("%d bytes went over bridge %d", long, i+1)
		require.GreaterOrEqual(c.t, long, size-short)
	}
	require.False(c.t, c.sendsBy())
	c.bridges[0].Mend()
	until(c.t, "the bridge is used again", c.sendsBy)
}

// end ends the machines.
func (c *circle) end() {
	for _, v := range c.nodes {
		v.end()
	}
}

// Machines are a ring of bridges. Each reaches each. A bridge is cut in the middle of a transfer: nothing is lost, and all goes
// the other way round. Two bridges between two machines are a ring as well.
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
						does(v.peer, fmt.Sprint("node ", i+1), fmt.Sprintf("echo node%d 10", to))
					}
				}
			}
			c.cutAndMend()
			c.end()
		})
	}
}
