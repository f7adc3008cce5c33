package shmem

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"sync"
)

// Team is some PEs of the job, numbered from 0, like shmem_team_t. Collective calls
// of a team are made by all its PEs, in the same order, one at a time.
//
// Each team has a work area at the same place of all heaps. Offsets from its
// beginning, where PEs are numbered as in the team:
//
//	0x00       8  scratch of this PE, read by the others: see agree
//	...
//	0x40 64 src   8  how many steps PE src has taken towards this PE
//
// All that a collective does between two PEs is a step: a put perhaps, and then the
// count. Both sides take the same steps in the same order, so the count alone says
// which step it was; it never goes back, and nobody resets it.
type Team struct {
	w     *World
	pes   []int   // of the World, by number in the team; immutable
	peers []*peer // likewise
	me    int     // this PE's number
	slot  int     // of the work areas
	ctx   *Ctx    // of the steps

	mu   sync.Mutex // a collective is under way
	sent []uint64   // steps towards each PE; guarded by mu
	seen []uint64   // steps from each; guarded by mu

	freeMu sync.Mutex
	free   uint64 // of the world's team: slots that are free, as bits; guarded by freeMu
}

const (
	maxTeams  = 64
	areaLine  = 64
	postWords = areaLine / 8
)

// ErrTooManyTeams: a PE is in 64 teams already.
var ErrTooManyTeams = errors.New("shmem: too many teams")

// teamBytes is what the work area of a team takes.
func teamBytes(n int) uintptr {
	return (uintptr(n+1)*areaLine + pageBytes - 1) &^ (pageBytes - 1)
}

// area is the offset of the team's work area.
func (t *Team) area() uintptr { return firstShared + uintptr(t.slot)*teamBytes(len(t.w.peers)) }

// post is this PE's scratch.
func (t *Team) post() Sym[uint64] { return Sym[uint64]{t.w, t.area(), postWords} }

// count is where steps of PE src are counted.
func (t *Team) count(src int) Sym[uint64] {
	return Sym[uint64]{t.w, t.area() + uintptr(src+1)*areaLine, 1}
}

func worldTeam(w *World) *Team {
	pes := make([]int, len(w.peers))
	for i := range pes {
		pes[i] = i
	}
	t := makeTeam(w, pes, w.pe, 0)
	t.free = ^uint64(1)
	return t
}

func makeTeam(w *World, pes []int, me, slot int) *Team {
	t := &Team{w: w, pes: pes, me: me, slot: slot, sent: make([]uint64, len(pes)), seen: make([]uint64, len(pes))}
	for _, pe := range pes {
		t.peers = append(t.peers, w.peers[pe])
	}
	t.ctx = newCtx(w, t, t.peers)
	return t
}

// MyPE is this PE's number in the team, like shmem_team_my_pe.
func (t *Team) MyPE() int { return t.me }

// NPEs is how many PEs the team has, like shmem_team_n_pes.
func (t *Team) NPEs() int { return len(t.pes) }

// TranslatePE is the number in team other of the team's PE pe, -1 if it is not there,
// like shmem_team_translate_pe.
func (t *Team) TranslatePE(pe int, other *Team) int {
	if uint(pe) >= uint(len(t.pes)) {
		badPE(pe, len(t.pes))
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
	t.w.check()
	return newCtx(t.w, t, t.peers)
}

// step tells PE dst of the team that one more step is done towards it. What was put
// there before is seen by whoever sees the step.
func (t *Team) step(dst int) {
	t.sent[dst]++
	t.ctx.Fence()
	P(t.ctx, t.count(t.me), 0, t.sent[dst], dst)
}

// await waits for the next step of PE src.
func (t *Team) await(ctx context.Context, src int) error {
	t.seen[src]++
	p, want := t.count(src).local(0), t.seen[src]
	look := func() bool { return atomicLoad(p) >= want }
	if look() {
		return nil
	}
	return t.w.wait(ctx, look)
}

// Sync waits until all PEs of the team have called it, like shmem_team_sync. What
// this PE stored to others need not be there: see Barrier.
func (t *Team) Sync(ctx context.Context) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.w.check()
	return t.sync(ctx)
}

// Barrier completes this PE's operations on the default context, and then waits
// until all PEs of the team have called it: with the team of all PEs, like
// shmem_barrier_all.
func (t *Team) Barrier(ctx context.Context) error {
	if err := t.w.ctx.Quiet(); err != nil {
		return err
	}
	return t.Sync(ctx)
}

// sync is a dissemination barrier: in round r each PE tells the one 2^r further,
// and waits for the one 2^r before. The caller holds mu.
func (t *Team) sync(ctx context.Context) error {
	n := len(t.pes)
	for d := 1; d < n; d *= 2 {
		t.step((t.me + d) % n)
		if err := t.await(ctx, (t.me+n-d)%n); err != nil {
			return err
		}
	}
	return t.ctx.Err()
}

// agree gives all PEs of the team what each has posted, in the team's order, by
// calling each with it.
func (t *Team) agree(ctx context.Context, words []uint64, each func(pe int, words []uint64)) error {
	copy(t.post().Local(), words)
	if err := t.sync(ctx); err != nil {
		return err
	}
	got := make([]uint64, len(words))
	for pe := range t.pes {
		Get(t.ctx, got, t.post(), pe)
		each(pe, got)
	}
	if err := t.ctx.Err(); err != nil {
		return err
	}
	return t.sync(ctx) // nobody posts again before all have read
}

// SplitStrided makes a team of size PEs of this one: start, start+stride, and so on,
// like shmem_team_split_strided. It is collective over this team; PEs that are not
// in the new one get nil. A stride may be negative, or 0 for a team of one.
func (t *Team) SplitStrided(ctx context.Context, start, stride, size int) (*Team, error) {
	n := len(t.pes)
	last := start + (size-1)*stride
	if size < 1 || start < 0 || start >= n || last < 0 || last >= n || size > 1 && stride == 0 {
		return nil, fmt.Errorf("shmem: split: PEs %d to %d in steps of %d of a team of %d", start, last, stride, n)
	}
	var pes []int
	for i := range size {
		pes = append(pes, start+i*stride)
	}
	return t.split(ctx, pes)
}

// Split2D makes two teams of this one, whose PEs are laid out in rows of xrange, like
// shmem_team_split_2d: x has the PEs of this PE's row, y those of its column.
func (t *Team) Split2D(ctx context.Context, xrange int) (x, y *Team, err error) {
	n := len(t.pes)
	if xrange < 1 {
		return nil, nil, fmt.Errorf("shmem: split: rows of %d", xrange)
	}
	xrange = min(xrange, n)
	for row := 0; row*xrange < n; row++ {
		var pes []int
		for pe := row * xrange; pe < min((row+1)*xrange, n); pe++ {
			pes = append(pes, pe)
		}
		team, err := t.split(ctx, pes)
		if err != nil {
			return nil, nil, err
		}
		if team != nil {
			x = team
		}
	}
	for column := range xrange {
		var pes []int
		for pe := column; pe < n; pe += xrange {
			pes = append(pes, pe)
		}
		team, err := t.split(ctx, pes)
		if err != nil {
			return nil, nil, err
		}
		if team != nil {
			y = team
		}
	}
	return x, y, nil
}

// split makes a team of PEs of this one, whose numbers here are given. All PEs of
// this team call it. The new one gets a work area that is free at all of its PEs.
func (t *Team) split(ctx context.Context, pes []int) (*Team, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.w.check()
	world := t.w.team
	world.freeMu.Lock()
	mine := world.free
	world.freeMu.Unlock()
	free, me := ^uint64(0), -1
	var of []int
	for i, pe := range pes {
		of = append(of, t.pes[pe])
		if pe == t.me {
			me = i
		}
	}
	in := map[int]bool{}
	for _, pe := range pes {
		in[pe] = true
	}
	err := t.agree(ctx, []uint64{mine}, func(pe int, w []uint64) {
		if in[pe] {
			free &= w[0]
		}
	})
	if err != nil {
		return nil, err
	}
	if free == 0 {
		return nil, fmt.Errorf("shmem: split: %d teams are there already: %w", maxTeams, ErrTooManyTeams)
	}
	if me < 0 {
		return nil, t.sync(ctx)
	}
	slot := bits.TrailingZeros64(free)
	world.freeMu.Lock()
	world.free &^= 1 << slot
	world.freeMu.Unlock()
	made := makeTeam(t.w, of, me, slot)
	// An earlier team's counts are there; they are this PE's own to clear, before
	// anybody steps: the sync of the parent sees to that.
	for src := range of {
		P(made.ctx, made.count(src), 0, 0, me)
	}
	return made, t.sync(ctx)
}

// Destroy ends the team, like shmem_team_destroy. It is collective. The team of all
// PEs is not to be destroyed.
func (t *Team) Destroy(ctx context.Context) error {
	if t == t.w.team {
		panic("shmem: the team of all PEs cannot be destroyed")
	}
	err := t.Sync(ctx)
	world := t.w.team
	world.freeMu.Lock()
	defer world.freeMu.Unlock()
	world.free |= 1 << t.slot
	return err
}
