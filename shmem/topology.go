package shmem

import (
	"context"
	"slices"
)

// topology is what collective calls know of where the PEs of a team are. All of them
// know the same. It is immutable, but for tree.
type topology struct {
	oneHost bool  // all are of one host, and mapped to each other
	chained bool  // their hosts form a ring or a line, and are more than two
	ring    []int // if chained: PEs so that those of neighbours are next to each other
	place   int   // if chained: of this PE in ring

	tree tree // of the last large broadcast; guarded by the team's mu
}

// share is for Open. All PEs tell each other which of the others of their host are
// mapped to them, so that all know the same, whatever went wrong where, and makes the
// shared team of it.
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

// shared tells if two PEs are mapped to each other.
func (w *World) shared(a, b int) bool {
	return w.sharers[a][b/64]>>(b%64)&1 != 0 && w.sharers[b][a/64]>>(a%64)&1 != 0
}

// sharing is the group of this PE. Each PE, in order, joins the first group whose
// members are all mapped to it, so the groups are the same for all.
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

// topologyOf is that of a team of PEs of the World.
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

// tree is who passes a large broadcast on to whom.
type tree struct {
	valid    bool
	root     int
	parent   int
	children []int
}

// treeOf is the tree of a root, as this PE sees it.
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
	// The one that passes it on to most comes first.
	slices.SortStableFunc(t.tree.children, func(a, b int) int { return t.rank(b, root) - t.rank(a, root) })
	return &t.tree
}

// rank is a PE's number if root had 0.
func (t *Team) rank(pe, root int) int {
	n := len(t.pes)
	return (pe - root + n) % n
}

// binomial is each PE's parent in a binomial tree: its rank without the last bit.
func (t *Team) binomial(root int) []int {
	n := len(t.pes)
	parents := make([]int, n)
	for pe := range n {
		rank := t.rank(pe, root)
		parents[pe] = (rank&(rank-1) + root) % n
	}
	return parents
}

// chains is each PE's parent in chains from neighbour to neighbour: of the first PE of
// each host, the first PE of the host before it on the way from root, to the right or
// to the left, whichever is shorter; of any other PE of a host, the one before it
// there. root is the first of its host.
func (t *Team) chains(root int) []int {
	node := func(pe int) int { return t.peers[pe].node }
	nodes := t.w.spec.Nodes
	// distance is how far to the right a host is: negative to the left.
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
		best := root // the furthest host between root's and this one
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
