package shmem

import (
	"context"

	"github.com/ntbnet/ntbnet/internal/job"
)

// Team is an ordered set of PEs of the job, numbered from 0, like shmem_team_t. All
// its PEs make the team's collective calls, in the same order, one at a time. Calls
// of different teams may be under way at once. If one fails, because a PE ended or
// its ctx did, the PEs may be at different places. So all later calls of the team
// return the same error.
//
// A nil Team has no PEs, like SHMEM_TEAM_INVALID.
type Team struct {
	// Immutable.
	core   *job.Team
	w      *World
	config TeamConfig
}

// ErrTooManyTeams reports that a PE is in 64 teams already.
var ErrTooManyTeams = job.ErrTooManyTeams

// ErrMismatch reports that the PEs of a collective call do not agree on its
// arguments, or called different ones. Nothing has been done then, and the team
// remains usable.
//
// Calls that manage memory and teams compare what the PEs pass. All others do in debug
// mode, an option of Open; without it the PEs would wait for each other, perhaps for ever.
var ErrMismatch = job.ErrMismatch

// TeamConfig is the configuration of a team, like shmem_team_config_t.
type TeamConfig struct {
	// NumContexts is how many contexts of the team the program wants to have at the
	// same time. Their number is not limited here.
	NumContexts int
}

// teamOf returns the Team of core, or nil if that is nil.
func teamOf(w *World, core *job.Team, config []TeamConfig) *Team {
	if core == nil {
		return nil
	}
	t := &Team{core: core, w: w}
	if len(config) > 0 {
		t.config = config[0]
	}
	return t
}

// untyped returns the team as internal/job knows it, nil for a nil team.
func (t *Team) untyped() *job.Team {
	if t == nil {
		return nil
	}
	return t.core
}

// world returns the team's World, nil for a nil team.
func (t *Team) world() *World {
	if t == nil {
		return nil
	}
	return t.w
}

// MyPE returns this PE's number in the team, like shmem_team_my_pe. In a nil team
// it is -1.
func (t *Team) MyPE() int { return t.untyped().MyPE() }

// NPEs returns the number of PEs in the team, like shmem_team_n_pes. For a nil team
// it is -1.
func (t *Team) NPEs() int { return t.untyped().NPEs() }

// TranslatePE returns the number in team other of the team's PE pe, like
// shmem_team_translate_pe. It returns -1 if the PE is not in both, or a team is
// nil.
func (t *Team) TranslatePE(pe int, other *Team) int {
	return t.untyped().TranslatePE(pe, other.untyped())
}

// Config returns the configuration with which the team was made, like
// shmem_team_get_config. For a nil team it is zero.
func (t *Team) Config() TeamConfig {
	if t == nil {
		return TeamConfig{}
	}
	return t.config
}

// NewCtx makes a context that numbers PEs as the team does, like
// shmem_team_create_ctx.
func (t *Team) NewCtx() *Ctx {
	c := &Ctx{w: t.world(), team: t}
	t.untyped().InitCtx(&c.core)
	return c
}

// Sync waits until all PEs of the team have called it, like shmem_team_sync, or with
// the team of all PEs shmem_sync_all. What this PE stored to others may arrive later; see Barrier.
func (t *Team) Sync(ctx context.Context) error { return t.untyped().Sync(ctx) }

// Barrier completes this PE's operations on the default context, and then waits
// until all PEs of the team have called it. With the team of all PEs it is like
// shmem_barrier_all.
func (t *Team) Barrier(ctx context.Context) error { return t.untyped().Barrier(ctx) }

// SplitStrided makes a team of size PEs of this one: start, start+stride, and so on,
// like shmem_team_split_strided. It is collective over this team; PEs that are not
// in the new one get nil. A stride may be negative, or 0 for a team of one. If there
// are no such PEs, or the new team cannot be made, all get an error.
func (t *Team) SplitStrided(ctx context.Context, start, stride, size int, config ...TeamConfig) (*Team, error) {
	made, err := t.untyped().SplitStrided(ctx, start, stride, size)
	return teamOf(t.world(), made, config), err
}

// Split2D makes two teams of this one, whose PEs are laid out in rows of xrange, like
// shmem_team_split_2d: x has the PEs of this PE's row, y those of its column. xrange
// is at least 1. An xrange above the number of PEs counts as that number. The first
// config is for x, the second for y. If a team cannot be made, all get an error and
// none is made.
func (t *Team) Split2D(ctx context.Context, xrange int, config ...TeamConfig) (x, y *Team, err error) {
	first, second, err := t.untyped().Split2D(ctx, xrange)
	x = teamOf(t.world(), first, config[:min(1, len(config))])
	y = teamOf(t.world(), second, config[min(1, len(config)):])
	return x, y, err
}

// Destroy ends the team, like shmem_team_destroy. It is collective over the team. The
// team of all PEs and the shared team must not be destroyed. Contexts made of the team
// remain usable.
func (t *Team) Destroy(ctx context.Context) error { return t.untyped().Destroy(ctx) }
