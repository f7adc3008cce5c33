package shmem

import (
	"context"
	"slices"
)

// topology describes where the PEs of a team are, for collective calls. All of them
// have the same. It is immutable, except tree.
type topology struct {
	oneHost bool  // all PEs are on one host, and mapped to each other
	chained bool  // their hosts form a ring or a line, and are more than two
	ring    []int // if chained: the PEs in the order of their hosts
	place   int   // if chained: index of this PE in ring

	tree tree // of the last large broadcast; guarded by the team's mu
}

// share is called by Open. All PEs exchange which of the others on their host they
// have mapped, so that all have the same information, even where a mapping failed. It
// makes the shared team of it.
func (w *World) share(ctx context.Context) error {
	n := len(w.peers)
	row := make([]uint64, (n+63)/64)
	for pe, p := range w.peers {
		if pe == w.pe || p.base.Load() != nil && p.node == w.self.node {
			row[pe/64] |= 1 << (pe % 64)
		}
	}
	w.sharers = make([][]uint64, n)
	for at := 0; at < len(row); at += messageWords {
		var mine words
		copy(mine[:], row[at:])
		err := w.team.agree(ctx, mine, func(pe int, got words) { w.sharers[pe] = append(w.sharers[pe], got[:]...) })
		if err != nil {
			return err
		}
	}
	pes := w.sharing()
	w.near = makeTeam(w, pes, slices.Index(pes, w.pe), sharedSlot)
	w.team.topology = w.topologyOf(w.team.pes)
	return nil
}

// shared reports whether two PEs are mapped to each other.
func (w *World) shared(a, b int) bool {
	return w.sharers[a][b/64]>>(b%64)&1 != 0 && w.sharers[b][a/64]>>(a%64)&1 != 0
}

// sharing returns the group of this PE. The PEs, in order, each join the first
// group whose members are all mapped to them. So all PEs compute the same groups.
func (w *World) sharing() []int {
	var all [][]int
	in := func(pe int) int {
		return slices.IndexFunc(all, func(group []int) bool {
			return !slices.ContainsFunc(group, func(other int) bool { return !w.shared(pe, other) })
		})
	}
	mine := 0
	for pe := range w.peers {
		i := in(pe)
		if i < 0 {
			all = append(all, nil)
			i = len(all) - 1
		}
		all[i] = append(all[i], pe)
		if pe == w.pe {
			mine = i
		}
	}
	return all[mine]
}

// topologyOf returns the topology of a team of PEs of the World.
func (w *World) topologyOf(pes []int) topology {
	if w.sharers == nil { // Open is under way
		return topology{}
	}
	t := topology{oneHost: true}
	hosts := map[int]bool{}
	for i, a := range pes {
		hosts[w.peers[a].node] = true
		for _, b := range pes[:i] {
			t.oneHost = t.oneHost && w.shared(a, b)
		}
		t.ring = append(t.ring, i)
	}
	t.chained = len(hosts) > 2 && (w.spec.Kind == "ring" || w.spec.Kind == "line")
	if !t.chained {
		t.ring = nil
		return t
	}
	slices.SortStableFunc(t.ring, func(i, j int) int { return w.peers[pes[i]].node - w.peers[pes[j]].node })
	t.place = slices.IndexFunc(t.ring, func(i int) bool { return pes[i] == w.pe })
	return t
}

// tree says which PE passes a large broadcast on to which.
type tree struct {
	valid    bool
	root     int
	parent   int
	children []int
}

// treeOf returns the tree of a root, from this PE's view.
func (t *Team) treeOf(root int) *tree {
	if t.tree.valid && t.tree.root == root {
		return &t.tree
	}
	parents := t.binomial(root)
	if t.chained {
		parents = t.chains(root)
	}
	t.tree = tree{valid: true, root: root, parent: parents[t.me]}
	for pe, parent := range parents {
		if pe != root && parent == t.me {
			t.tree.children = append(t.tree.children, pe)
		}
	}
	// The child with the largest subtree comes first.
	slices.SortStableFunc(t.tree.children, func(a, b int) int { return t.rank(b, root) - t.rank(a, root) })
	return &t.tree
}

// rank returns a PE's number counted from root.
func (t *Team) rank(pe, root int) int {
	n := len(t.pes)
	return (pe - root + n) % n
}

// binomial returns each PE's parent in a binomial tree: its rank without the last
// bit that is set.
func (t *Team) binomial(root int) []int {
	n := len(t.pes)
	parents := make([]int, n)
	for pe := range n {
		rank := t.rank(pe, root)
		parents[pe] = (rank&(rank-1) + root) % n
	}
	return parents
}

// chains returns each PE's parent in chains from neighbour to neighbour. The parent of
// a host's first PE is the first PE of the host before it on the shorter way from
// root, to the right or to the left. The parent of any other PE is the one before it
// on its host. root counts as the first PE of its host.
func (t *Team) chains(root int) []int {
	node := func(pe int) int { return t.peers[pe].node }
	nodes := t.w.spec.Nodes
	// distance returns how far to the right of root's host a PE's host is. To the
	// left it is negative.
	distance := func(pe int) int {
		d := node(pe) - node(root)
		if t.w.spec.Kind == "ring" {
			if d = (d + nodes) % nodes; d > nodes/2 {
				d -= nodes
			}
		}
		return d
	}
	first := map[int]int{node(root): root}
	last := map[int]int{node(root): root}
	parents := make([]int, len(t.pes))
	for pe := range t.pes {
		at := node(pe)
		if pe == root {
			parents[pe] = root
		} else if _, ok := first[at]; !ok {
			first[at], last[at] = pe, pe
		} else {
			parents[pe], last[at] = last[at], pe
		}
	}
	for _, head := range first {
		best := root // the furthest host between root's host and this one
		for _, other := range first {
			d, o, b := distance(head), distance(other), distance(best)
			if d > 0 && o > b && o < d || d < 0 && o < b && o > d {
				best = other
			}
		}
		parents[head] = best
	}
	return parents
}
