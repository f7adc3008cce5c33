package collective

import (
	"testing"

	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/stretchr/testify/require"
)

// on makes a Team whose PEs are on the given hosts of a fabric, as PE me sees it.
func on(kind string, hosts int, nodes []int, me int) *Team {
	l := Layout{OneHost: true, Nodes: nodes, Chained: kind != "mesh", Closed: kind == "ring", Hosts: hosts}
	for _, node := range nodes {
		l.OneHost = l.OneHost && node == nodes[0]
	}
	t := &Team{peers: make([]*onesided.Peer, len(nodes)), me: me}
	t.SetLayout(l)
	return t
}

func TestChainsGoFromNeighbourToNeighbour(t *testing.T) {
	for _, kind := range []string{"ring", "line"} {
		for _, nodes := range [][]int{{1, 2, 3}, {1, 2, 3, 4}, {5, 3, 1, 2, 4}, {1, 1, 2, 3, 2, 1, 3}, {7, 1, 6, 2, 5, 3, 4, 4}} {
			hosts := 0
			for _, node := range nodes {
				hosts = max(hosts, node)
			}
			for root := range nodes {
				team := on(kind, hosts, nodes, root)
				require.True(t, team.chained)
				require.False(t, team.OneHost)
				parents := team.chains(root)
				crossed := map[[2]int]int{}
				for pe, parent := range parents {
					if pe == root {
						continue
					}
					if a, b := nodes[parent], nodes[pe]; a != b {
						d := max(a-b, b-a)
						if kind == "ring" {
							d = min(d, hosts-d)
						}
						require.Equal(t, 1, d, "%s %v, root %d: PE %d has it from PE %d", kind, nodes, root, pe, parent)
						crossed[[2]int{min(a, b), max(a, b)}]++
					}
					steps := 0
					for at := pe; at != root; at = parents[at] {
						steps++
						require.Less(t, steps, len(nodes), "a circle")
					}
				}
				for cable, times := range crossed {
					require.Equal(t, 1, times, "cable %v", cable)
				}
			}
		}
	}
}

func TestHostsThatHaveNoPEAreLeftOut(t *testing.T) {
	team := on("line", 9, []int{2, 5, 9, 1}, 0)
	require.Equal(t, []int{1, 1, 1, 0}, team.chains(1))
	require.Equal(t, []int{3, 0, 1, 2}, team.ring)
}

func TestPEsOfOneHostAreNotChained(t *testing.T) {
	require.True(t, on("ring", 5, []int{2, 2, 2}, 1).OneHost)
	require.False(t, on("ring", 5, []int{2, 2, 3}, 1).chained) // two hosts
	require.False(t, on("mesh", 5, []int{1, 2, 3}, 1).chained)
}

func TestBinomialTreesReachAll(t *testing.T) {
	for n := 1; n <= 20; n++ {
		for root := range n {
			reached := map[int]bool{root: true}
			var visit func(pe int)
			visit = func(pe int) {
				team := on("mesh", 2, make([]int, n), pe)
				way := team.treeOf(root)
				require.Same(t, way, team.treeOf(root))
				for _, child := range way.children {
					require.False(t, reached[child])
					reached[child] = true
					visit(child)
				}
			}
			visit(root)
			require.Len(t, reached, n)
		}
	}
}

// How many steps a barrier takes, and that each PE is told of each other one.
func TestHostsMeetByTheirFirstPEs(t *testing.T) {
	for _, c := range []struct {
		nodes  []int
		mapped bool
		steps  int
	}{
		{[]int{0, 0, 0, 0}, true, 12},
		{[]int{0, 0, 0, 0}, false, 6},
		{[]int{0, 0}, false, 2},
		{[]int{1, 2, 3, 4}, false, 12},
		{[]int{1, 1, 2, 2}, false, 6},
		{[]int{2, 1, 2, 1, 3, 1}, false, 12},
		{nil, false, 12},
	} {
		n := len(c.nodes)
		if n == 0 {
			n = 4 // Open is under way
		}
		heads, crews := map[int]bool{}, map[int]bool{}
		var all []meeting
		steps := 0
		for me := range n {
			m := Layout{OneHost: c.mapped, Nodes: c.nodes}.meeting(me, n)
			all = append(all, m)
			if m.head != me {
				require.Empty(t, m.crew)
				steps++
				continue
			}
			heads[me] = true
			steps += len(m.crew) + len(m.others)
			for _, pe := range m.crew {
				require.False(t, crews[pe], "%v: PE %d has two first PEs", c.nodes, pe)
				crews[pe] = true
			}
		}
		for pe, m := range all {
			require.NotEqual(t, heads[pe], crews[pe])
			require.Len(t, m.others, len(heads)-1)
			for _, head := range append(m.others, m.head) {
				require.True(t, heads[head])
			}
		}
		require.Equal(t, c.steps, steps, "%v", c.nodes)
	}
}
