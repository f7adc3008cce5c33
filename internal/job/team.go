package job

import (
	"context"
	"slices"

	"github.com/ntbnet/ntbnet/internal/collective"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/symheap"
)

// Team is an ordered set of PEs of the job, numbered from 0. A nil Team has no PEs.
type Team struct {
	// Immutable.
	w      *World
	pes    []int            // by number in the team, the number in the World
	me     int              // this PE's number
	slot   int              // of the work area
	engine *collective.Team // its calls

	freeMu lock.Mutex[lock.Slots]
	free   uint64 // in the team of all PEs: free slots, as bits; guarded by freeMu
}

// maxTeams is how many teams a PE may be in.
const maxTeams = 64

func worldTeam(w *World) *Team {
	pes := make([]int, len(w.peers))
	for i := range pes {
		pes[i] = i
	}
	t := makeTeam(w, pes, w.pe, worldSlot)
	t.free = ^uint64(0)
	return t
}

func makeTeam(w *World, pes []int, me, slot int) *Team {
	t := &Team{w: w, pes: pes, me: me, slot: slot}
	t.engine = collective.New(w.space, t.peers(), me, w.area(slot), w.layoutOf(pes))
	return t
}

// area returns the offset of the work area of a slot.
func (w *World) area(slot int) uintptr {
	return symheap.Shared + uintptr(slot)*collective.AreaBytes(len(w.peers))
}

// peers returns the team's PEs.
func (t *Team) peers() (all []*onesided.Peer) {
	for _, pe := range t.pes {
		all = append(all, t.w.space.Peers()[pe])
	}
	return all
}

// MyPE returns this PE's number in the team, -1 in a nil team.
func (t *Team) MyPE() int {
	if t == nil {
		return -1
	}
	return t.me
}

// NPEs returns the number of PEs in the team, -1 for a nil team.
func (t *Team) NPEs() int {
	if t == nil {
		return -1
	}
	return len(t.pes)
}

// TranslatePE returns the number in team other of the team's PE pe, -1 if the PE is not in both.
func (t *Team) TranslatePE(pe int, other *Team) int {
	if t == nil || other == nil || uint(pe) >= uint(len(t.pes)) {
		return -1
	}
	return slices.Index(other.pes, t.pes[pe])
}

// PEs returns the team's PEs: by number in the team, the number in the World. They are
// not to be changed.
func (t *Team) PEs() []int { return t.pes }

// InitCtx makes c a context that numbers PEs as the team does.
func (t *Team) InitCtx(c *onesided.Ctx) {
	if t == nil {
		panic("shmem: context of a nil Team")
	}
	t.w.Check()
	c.Init(t.w.space, t.peers())
}

// Sync waits until all PEs of the team have called it. What this PE stored to others may arrive later.
func (t *Team) Sync(ctx context.Context) error {
	if err := t.enter(ctx, words{uint64(callSync)}); err != nil {
		return err
	}
	return t.engine.Leave(t.engine.Sync(ctx))
}

// Barrier completes this PE's operations on the default context, and then is Sync.
func (t *Team) Barrier(ctx context.Context) error {
	if t == nil {
		panic(nilTeam)
	}
	if err := t.w.ctx.Quiet(); err != nil {
		return err
	}
	if err := t.enter(ctx, words{uint64(callBarrier)}); err != nil {
		return err
	}
	return t.engine.Leave(t.engine.Sync(ctx))
}
