package shmem

import (
	"context"

	"github.com/ntbnet/ntbnet/internal/lock"
)

// Team is some PEs of the job, numbered from 0, like shmem_team_t. Collective calls
// of a team are made by all its PEs, in the same order, one at a time; those of
// different teams may be under way at once. If one fails, because a PE ended or its
// ctx did, the PEs may be at different places, so all later ones of the team return
// the same error.
//
// A nil Team is one without PEs, like SHMEM_TEAM_INVALID.
type Team struct {
	// Immutable.
	w     *World
	pes   []int   // of the World, by number in the team
	peers []*peer // likewise
	me    int     // this PE's number
	slot  int     // of the work areas
	area  uintptr // offset of the work area
	ctx   *Ctx    // of the steps
	topology
	config TeamConfig // immutable once made

	mu    lock.Mutex[lock.Team]    // a collective is under way
	pairs []partner                // by PE; guarded by mu
	err   error                    // of a collective that failed; guarded by mu
	ended bool                     // by Destroy; guarded by mu
	line  [slotNumberAt / 8]uint64 // a message on its way; guarded by mu
	buf   []uint64                 // scratch; guarded by mu

	freeMu lock.Mutex[lock.Slots]
	free   uint64 // of the world's team: slots that are free, as bits; guarded by freeMu
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
	t := &Team{w: w, pes: pes, me: me, slot: slot, pairs: make([]partner, len(pes))}
	t.area = firstShared + uintptr(slot)*teamBytes(len(w.peers))
	for _, pe := range pes {
		t.peers = append(t.peers, w.peers[pe])
	}
	t.ctx = newCtx(w, t, t.peers)
	t.topology = w.topologyOf(pes)
	return t
}

// MyPE is this PE's number in the team, -1 in a nil one, like shmem_team_my_pe.
func (t *Team) MyPE() int {
	if t == nil {
		return -1
	}
	return t.me
}

// NPEs is how many PEs the team has, -1 if it is nil, like shmem_team_n_pes.
func (t *Team) NPEs() int {
	if t == nil {
		return -1
	}
	return len(t.pes)
}

// TranslatePE is the number in team other of the team's PE pe, -1 if it is not in
// both, or a team is nil, like shmem_team_translate_pe.
func (t *Team) TranslatePE(pe int, other *Team) int {
	if t == nil || other == nil || uint(pe) >= uint(len(t.pes)) {
		return -1
	}
	for i, world := range other.pes {
		if world == t.pes[pe] {
			return i
		}
	}
	return -1
}

// NewCtx makes a context that numbers PEs as the team does, like
// shmem_team_create_ctx.
func (t *Team) NewCtx() *Ctx {
	if t == nil {
		panic("shmem: context of a nil Team")
	}
	t.w.check()
	return newCtx(t.w, t, t.peers)
}

// Sync waits until all PEs of the team have called it, like shmem_team_sync. What
// this PE stored to others need not be there: see Barrier.
func (t *Team) Sync(ctx context.Context) error {
	if err := t.enter(ctx, callSync); err != nil {
		return err
	}
	return t.leave(t.sync(ctx))
}

// Barrier completes this PE's operations on the default context, and then waits
// until all PEs of the team have called it: with the team of all PEs, like
// shmem_barrier_all.
func (t *Team) Barrier(ctx context.Context) error {
	if t == nil {
		panic(nilTeam)
	}
	if err := t.w.ctx.Quiet(); err != nil {
		return err
	}
	if err := t.enter(ctx, callBarrier); err != nil {
		return err
	}
	return t.leave(t.sync(ctx))
}

// flat is how many PEs a team may have for each to tell each other, rather than
// through others: it is one round, and where PEs share processors each has to run
// once only.
const flat = 8

// sync is a barrier. A few PEs tell each other. Of more, in round r each tells the one
// 2^r further, and waits for the one 2^r before. The caller holds mu.
func (t *Team) sync(ctx context.Context) error {
	n := len(t.pes)
	if n <= flat {
		t.stepAll()
		return t.awaitAll(ctx)
	}
	for d := 1; d < n; d *= 2 {
		t.step(t.next(d))
		if err := t.await(ctx, t.next(n-d)); err != nil {
			return err
		}
	}
	return nil
}
