package job

import (
	"context"
	"slices"

	"github.com/ntbnet/ntbnet/internal/collective"
)

// share is called by Open. All PEs exchange which of the others they
// have mapped, so that all have the same information, even where a mapping failed. It
// makes the shared team of it.
func (w *World) share(ctx context.Context) error {
	n := len(w.peers)
	row := make([]uint64, (n+63)/64)
	for pe, p := range w.peers {
		if p.Mapped() {
			row[pe/64] |= 1 << (pe % 64)
		}
	}
	w.sharers = make([][]uint64, n)
	for at := 0; at < len(row); at += len(collective.Words{}) {
		var mine collective.Words
		copy(mine[:], row[at:])
		err := w.team.engine.Agree(ctx, mine, func(pe int, got collective.Words) { w.sharers[pe] = append(w.sharers[pe], got[:]...) })
		if err != nil {
			return err
		}
	}
	pes := w.sharing()
	w.near = makeTeam(w, pes, slices.Index(pes, w.pe), sharedSlot)
	w.team.engine.SetLayout(w.layoutOf(w.team.pes))
	return nil
}

// maps reports whether PE a has mapped PE b.
func (w *World) maps(a, b int) bool { return w.sharers[a][b/64]>>(b%64)&1 != 0 }

// shared reports whether two PEs are on one host and mapped to each other.
func (w *World) shared(a, b int) bool {
	return w.peers[a].node == w.peers[b].node && w.maps(a, b) && w.maps(b, a)
}

// served reports whether all stores of other PEs come by requests, and processors are too few to poll:
// each PE has a goroutine that waits and one that serves.
func (w *World) served() bool {
	return len(w.peers) > 1 && w.window == nil && w.apart() && crowded(w.parts, w.pe, 2)
}

// apart reports whether this PE has mapped no other one, nor has one mapped it.
func (w *World) apart() bool {
	for pe := range w.peers {
		if pe != w.pe && (w.maps(w.pe, pe) || w.maps(pe, w.pe)) {
			return false
		}
	}
	return true
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

// layoutOf returns where the PEs of a team of the World are, for collective calls.
func (w *World) layoutOf(pes []int) collective.Layout {
	if w.sharers == nil { // Open is under way
		return collective.Layout{}
	}
	l := collective.Layout{OneHost: true}
	for i, a := range pes {
		l.Nodes = append(l.Nodes, w.peers[a].node)
		for _, b := range pes[:i] {
			l.OneHost = l.OneHost && w.shared(a, b)
		}
	}
	if w.spec != nil {
		l.Chained, l.Closed = w.spec.Chain()
		l.Hosts = w.spec.Nodes
	}
	return l
}
