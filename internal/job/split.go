package job

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"

	"github.com/ntbnet/ntbnet/internal/collective"
)

// How teams are made of others. All PEs of the parent
// exchange what they pass and which work areas they have free. The members of a new
// team take the first area that is free to all of them. A PE may be in several splits
// of different parents at once, so an area may be taken meanwhile. The members exchange
// whether they got it, and otherwise all try again.

// ErrTooManyTeams reports that a PE is in 64 teams already.
var ErrTooManyTeams = errors.New("shmem: too many teams")

// Slots of work areas. Teams that are split take those behind them.
const (
	worldSlot = iota
	sharedSlot
	setsSlot // shared by all active sets
	firstSlot
	areas = firstSlot + maxTeams
)

// SplitStrided makes a team of size PEs of this one: start, start+stride, and so on. It is
// collective over this team; PEs that are not in the new one get nil.
func (t *Team) SplitStrided(ctx context.Context, start, stride, size int) (*Team, error) {
	if t == nil {
		return nil, errNoTeam
	}
	group := func(pe int) int {
		if i := pe - start; i == 0 || stride != 0 && i%stride == 0 && i/stride > 0 && i/stride < size {
			return 0
		}
		return -1
	}
	n := len(t.pes)
	var err error
	if size < 1 || size > n || start < 0 || start >= n || size > 1 && (stride == 0 || stride <= -n || stride >= n) ||
		start+(size-1)*stride < 0 || start+(size-1)*stride >= n {
		err = fmt.Errorf("shmem: split: %d PEs from %d on in steps of %d, of a team of %d", size, start, stride, n)
	}
	if size == 1 {
		stride = 0
	}
	return t.split(ctx, words{uint64(callSplitStrided), uint64(start), uint64(stride), uint64(size)}, err, group, stride < 0)
}

// Split2D makes two teams of this one, whose PEs are laid out in rows of xrange: x has the PEs of
// this PE's row, y those of its column. If a team cannot be made, none is.
func (t *Team) Split2D(ctx context.Context, xrange int) (x, y *Team, err error) {
	if t == nil {
		return nil, nil, errNoTeam
	}
	what := words{uint64(callSplit2D), uint64(xrange)}
	if xrange < 1 {
		err = fmt.Errorf("shmem: split: rows of %d", xrange)
	}
	xrange = max(1, min(xrange, len(t.pes)))
	if x, err = t.split(ctx, what, err, func(pe int) int { return pe / xrange }, false); err != nil {
		return nil, nil, err
	}
	if y, err = t.split(ctx, what, nil, func(pe int) int { return pe % xrange }, false); err != nil {
		x.release()
		return nil, nil, err
	}
	return x, y, nil
}

var errNoTeam = errors.New("shmem: split of a nil Team")

// split divides this team in groups and makes a team of each. group returns the group
// that a PE belongs to, or -1. PEs keep their order, unless reverse is set. bad is what is
// wrong with the arguments. It is returned only when all PEs have passed the same ones.
func (t *Team) split(ctx context.Context, what words, bad error, group func(pe int) int, reverse bool) (*Team, error) {
	if err := t.compare(ctx, what); err != nil {
		return nil, err
	}
	if bad != nil {
		return nil, bad
	}
	if err := t.engine.Begin(); err != nil {
		return nil, err
	}
	g := group(t.me)
	var pes []int
	for pe, number := range t.pes {
		if group(pe) == g {
			pes = append(pes, number)
		}
	}
	if reverse {
		slices.Reverse(pes)
	}
	slot, full, err := t.takeSlots(ctx, group)
	var made *Team
	if err == nil && !full {
		if g >= 0 {
			made = makeTeam(t.w, pes, slices.Index(pes, t.w.pe), slot)
			made.engine.Clear()
		}
		err = t.engine.Sync(ctx) // no PE writes to the new area before it is clear
	}
	if err = t.engine.Leave(err); err != nil {
		return nil, err
	}
	if full {
		return nil, fmt.Errorf("shmem: split: %d teams are there already: %w", maxTeams, ErrTooManyTeams)
	}
	return made, nil
}

// Results of reserve.
const (
	slotTaken = iota
	slotBusy  // another split took it first
	slotNone
)

// takeSlots takes a slot for the team that this PE will be in. full reports that some
// team found none.
func (t *Team) takeSlots(ctx context.Context, group func(pe int) int) (slot int, full bool, err error) {
	world := t.w.team
	g := group(t.me)
	for try := 0; ; try++ {
		world.freeMu.Lock()
		mine := world.free
		world.freeMu.Unlock()
		free := ^uint64(0)
		err = t.engine.Agree(ctx, collective.Words{mine}, func(pe int, w collective.Words) {
			if group(pe) == g {
				free &= w[0]
			}
		})
		if err != nil {
			return 0, false, err
		}
		how := slotTaken
		if g >= 0 {
			slot, how = world.reserve(free, t.slot+try)
		}
		worst := slotTaken
		err = t.engine.Agree(ctx, collective.Words{uint64(how)}, func(_ int, w collective.Words) { worst = max(worst, int(w[0])) })
		if err == nil && worst == slotTaken {
			return slot, false, nil
		}
		if g >= 0 && how == slotTaken {
			world.unreserve(slot)
		}
		if err != nil || worst != slotBusy {
			return 0, true, err
		}
	}
}

// reserve takes the first of the free slots behind after. So concurrent splits of
// different parents try different slots.
func (t *Team) reserve(free uint64, after int) (slot, how int) {
	if free == 0 {
		return 0, slotNone
	}
	t.freeMu.Lock()
	defer t.freeMu.Unlock()
	after %= maxTeams
	bit := (bits.TrailingZeros64(bits.RotateLeft64(free, -after)) + after) % maxTeams
	if t.free>>bit&1 == 0 {
		return 0, slotBusy
	}
	t.free &^= 1 << bit
	return firstSlot + bit, slotTaken
}

func (t *Team) unreserve(slot int) {
	t.freeMu.Lock()
	defer t.freeMu.Unlock()
	t.free |= 1 << (slot - firstSlot)
}

// release gives this PE's work area back.
func (t *Team) release() {
	if t.engine.End() {
		t.w.team.unreserve(t.slot)
	}
}

// Destroy ends the team. It is collective over the team. Contexts made of it remain usable.
func (t *Team) Destroy(ctx context.Context) error {
	if t == nil {
		return nil
	}
	if t.slot < firstSlot {
		panic("shmem: the team of all PEs and the shared team cannot be destroyed")
	}
	if err := t.enter(ctx, words{uint64(callDestroy)}); err != nil {
		return err
	}
	// What this PE wrote to the others' work areas arrives before they use them again.
	err := t.engine.Quiet()
	if err == nil {
		err = t.engine.Sync(ctx)
	}
	if err = t.engine.Leave(err); err != nil {
		return err // the work area may still be in use
	}
	t.release()
	return nil
}
