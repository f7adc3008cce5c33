package collective

import "slices"

// Layout is where the PEs of a team are. All of them pass the same.
type Layout struct {
	OneHost bool  // all PEs are on one host, and mapped to each other
	Nodes   []int // the number of each PE's host
	// Chained says that a host is linked with those whose numbers are one more and one less,
	// and, if Closed, the last one of Hosts with the first.
	Chained, Closed bool
	Hosts           int
}

// topology is a Layout as one PE needs it. It is immutable.
type topology struct {
	Layout
	chained bool  // hosts form a ring or a line, and the team's are more than two
	ring    []int // if chained: the PEs in the order of their hosts
	index   int   // if chained: index of this PE in ring
	meeting
}

// meeting says with which PEs this one synchronizes. If PEs of one host reach each other by requests,
// the first one of each host does so for all of its host.
type meeting struct {
	head   int   // the first PE of this PE's host
	crew   []int // the others, if this PE is that one
	others []int // the first PEs of the other hosts, beginning with the next one
}

// meeting returns the meeting of PE me of a team of n.
func (l Layout) meeting(me, n int) (m meeting) {
	node := func(pe int) int { return pe }
	if !l.OneHost && len(l.Nodes) > 2 {
		node = func(pe int) int { return l.Nodes[pe] }
	}
	firsts := map[int]int{} // by host
	var heads []int
	for pe := range n {
		if _, ok := firsts[node(pe)]; !ok {
			firsts[node(pe)] = pe
			heads = append(heads, pe)
		} else if firsts[node(pe)] == me {
			m.crew = append(m.crew, pe)
		}
	}
	m.head = firsts[node(me)]
	i := slices.Index(heads, m.head)
	m.others = slices.Concat(heads[i+1:], heads[:i])
	return m
}

// topology returns the Layout of a team of n PEs as its PE me needs it.
func (l Layout) topology(me, n int) topology {
	t := topology{Layout: l, meeting: l.meeting(me, n)}
	hosts := map[int]bool{}
	for _, node := range l.Nodes {
		hosts[node] = true
	}
	if t.chained = len(hosts) > 2 && l.Chained; !t.chained {
		return t
	}
	for i := range l.Nodes {
		t.ring = append(t.ring, i)
	}
	slices.SortStableFunc(t.ring, func(i, j int) int { return l.Nodes[i] - l.Nodes[j] })
	t.index = slices.Index(t.ring, me)
	return t
}

// tree says which PE passes a large broadcast on to which.
type tree struct {
	root     int
	parent   int
	children []int
}

// treeOf returns the tree of a root, from this PE's view.
func (t *Team) treeOf(root int) *tree {
	if t.tree != nil && t.tree.root == root {
		return t.tree
	}
	parents := t.binomial(root)
	if t.chained {
		parents = t.chains(root)
	}
	t.tree = &tree{root: root, parent: parents[t.me]}
	for pe, parent := range parents {
		if pe != root && parent == t.me {
			t.tree.children = append(t.tree.children, pe)
		}
	}
	// The child with the largest subtree comes first.
	slices.SortStableFunc(t.tree.children, func(a, b int) int { return t.rank(b, root) - t.rank(a, root) })
	return t.tree
}

// rank returns a PE's number counted from root.
func (t *Team) rank(pe, root int) int {
	n := len(t.peers)
	return (pe - root + n) % n
}

// binomial returns each PE's parent in a binomial tree: its rank without the last
// bit that is set.
func (t *Team) binomial(root int) []int {
	n := len(t.peers)
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
	node := func(pe int) int { return t.Nodes[pe] }
	// distance returns how far to the right of root's host a PE's host is. To the
	// left it is negative.
	distance := func(pe int) int {
		d := node(pe) - node(root)
		if t.Closed {
			if d = (d + t.Hosts) % t.Hosts; d > t.Hosts/2 {
				d -= t.Hosts
			}
		}
		return d
	}
	first := map[int]int{node(root): root}
	last := map[int]int{node(root): root}
	parents := make([]int, len(t.peers))
	for pe := range t.peers {
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
