package collective

import "github.com/ntbnet/ntbnet/internal/onesided"

// Sets are the active sets of a job: teams that a PE makes without the others. They
// share a work area, and the counts of this PE's steps and messages with each other PE.
// Any two PEs make the calls of the sets that have both in the same order. So their
// counts agree, whatever sets the calls are of.
//
// Calls of active sets are one at a time at each PE. If one fails, all later ones do.
type Sets struct {
	space *onesided.Space
	stage uintptr
	pairs []partner // by PE of the job
	calls calls
}

// NewSets returns the active sets of a job, with a work area of AreaBytes at an offset.
func NewSets(space *onesided.Space, area uintptr) *Sets {
	n := len(space.Peers())
	return &Sets{space: space, stage: area + linesBytes(n), pairs: partners(area, n)}
}

// Team returns the set of some PEs of the job, of which this PE is number me.
func (s *Sets) Team(pes []int, me int, where Layout) *Team {
	var peers []*onesided.Peer
	var pairs []*partner
	for _, pe := range pes {
		peers = append(peers, s.space.Peers()[pe])
		pairs = append(pairs, &s.pairs[pe])
	}
	t := newTeam(s.space, peers, me, where, &s.calls)
	t.stage, t.pairs = s.stage, pairs
	return t
}
