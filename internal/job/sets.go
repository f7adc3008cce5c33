package job

import (
	"fmt"
	"slices"

	"github.com/ntbnet/ntbnet/internal/collective"
	"github.com/ntbnet/ntbnet/internal/lock"
)

// Active sets: what the specification had before teams. A call names its PEs by the first
// one, the binary logarithm of the stride and their number.

// sets are the active sets that this PE has used.
type sets struct {
	mu   lock.Mutex[lock.Sets]
	all  *collective.Sets // nil until the first; guarded by mu
	made map[set]*Team    // guarded by mu
}

// set are the arguments of a call that name an active set.
type set struct{ start, logStride, size int }

// ActiveSet returns the team of size PEs: start, start+1<<logStride, and so on. The other PEs
// need not call it. It panics if there are no such PEs, or this one is not among them.
//
// A PE makes one call of an active set at a time. Two PEs call the sets in which both are
// in the same order. The same arguments return the same Team, which cannot be destroyed.
func (w *World) ActiveSet(start, logStride, size int) *Team {
	w.Check()
	s := set{start, logStride, size}
	w.sets.mu.Lock()
	defer w.sets.mu.Unlock()
	if t := w.sets.made[s]; t != nil {
		return t
	}
	pes := s.pes(len(w.peers))
	me := slices.Index(pes, w.pe)
	if me < 0 {
		panic(fmt.Sprintf("shmem: active set of %d PEs from %d on, logarithm of the stride %d, of %d: this is PE %d", size, start, logStride, len(w.peers), w.pe))
	}
	if w.sets.all == nil {
		w.sets.all, w.sets.made = collective.NewSets(w.space, w.area(setsSlot)), map[set]*Team{}
	}
	t := &Team{w: w, pes: pes, me: me, slot: setsSlot, engine: w.sets.all.Team(pes, me, w.layoutOf(pes))}
	w.sets.made[s] = t
	return t
}

// pes returns the PEs of a set, of a job of n, or nil if it has others.
func (s set) pes(n int) (all []int) {
	if s.start < 0 || s.size < 1 || s.size > n || s.logStride < 0 {
		return nil
	}
	stride := n // so that a second PE is none of the job
	if s.logStride < 31 {
		stride = 1 << s.logStride
	}
	for i := range s.size {
		pe := s.start + i*stride
		if pe >= n {
			return nil
		}
		all = append(all, pe)
	}
	return all
}
