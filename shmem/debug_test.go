package shmem

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPEsThatCallDifferentCollectivesAreTold(t *testing.T) {
	modes := map[string][]Option{"mapped": {Debug()}, "strict": {Debug(), Strict()}}
	type calls func(ctx context.Context, t *Team, a, b Sym[int32]) error
	sync := func(ctx context.Context, t *Team, a, b Sym[int32]) error { return t.Sync(ctx) }
	barrier := func(ctx context.Context, t *Team, a, b Sym[int32]) error { return t.Barrier(ctx) }
	broadcast := func(n, root int) calls {
		return func(ctx context.Context, t *Team, a, b Sym[int32]) error {
			return Broadcast(ctx, t, b, a.Slice(0, n), root)
		}
	}
	tests := []struct {
		name        string
		first, last calls // calls of PE 0, and of the others
		want        string
	}{
		{"roots", broadcast(1, 0), broadcast(1, 1), "PE 0: Broadcast(root 0, "},
		{"numbers", broadcast(1, 1), broadcast(2, 1), ", n 2)"},
		{"objects", broadcast(1, 1), func(ctx context.Context, t *Team, a, b Sym[int32]) error {
			return Broadcast(ctx, t, b, a.Slice(1, 2), 1)
		}, "src at "},
		{"types", broadcast(4, 0), func(ctx context.Context, t *Team, a, b Sym[int32]) error {
			return Broadcast(ctx, t, symOf[int8](b.w, b.o.Off, 4), symOf[int8](a.w, a.o.Off, 4), 0)
		}, "elements of 1 bytes"},
		{"operations", func(ctx context.Context, t *Team, a, b Sym[int32]) error { return MinReduce(ctx, t, b, a.Slice(0, 1)) },
			func(ctx context.Context, t *Team, a, b Sym[int32]) error { return MaxReduce(ctx, t, b, a.Slice(0, 1)) }, "PE 0: MinReduce("},
		{"strides", func(ctx context.Context, t *Team, a, b Sym[int32]) error {
			return AlltoAllS(ctx, t, b, a.Slice(0, t.NPEs()*2), 1, 2)
		},
			func(ctx context.Context, t *Team, a, b Sym[int32]) error {
				return AlltoAllS(ctx, t, b, a.Slice(0, t.NPEs()), 2, 1)
			}, "AlltoAllS(strides 1 and 2, "},
		{"sync and barrier", sync, barrier, "PE 0: Sync()"},
		{"sync and broadcast", sync, broadcast(1, 0), "PE 0: Sync()"},
		{"broadcast and alloc", broadcast(1, 0), func(ctx context.Context, t *Team, a, b Sym[int32]) error {
			_, err := Alloc[int32](ctx, a.w, 5)
			return err
		}, "Alloc(20 bytes, aligned to 64)"},
		{"collect and fcollect", func(ctx context.Context, t *Team, a, b Sym[int32]) error { return Collect(ctx, t, b, a.Slice(0, 1)) },
			func(ctx context.Context, t *Team, a, b Sym[int32]) error { return FCollect(ctx, t, b, a.Slice(0, 1)) }, "PE 0: Collect("},
		{"split and alltoall", func(ctx context.Context, t *Team, a, b Sym[int32]) error {
			_, _, err := t.Split2D(ctx, 2)
			return err
		}, func(ctx context.Context, t *Team, a, b Sym[int32]) error {
			return AlltoAll(ctx, t, b, a.Slice(0, t.NPEs()))
		}, "PE 0: Split2D(xrange 2)"},
		{"lengths of slices", func(ctx context.Context, t *Team, a, b Sym[int32]) error { return Bcast(ctx, t, make([]int32, 4), 0) },
			func(ctx context.Context, t *Team, a, b Sym[int32]) error { return Bcast(ctx, t, make([]int32, 5), 0) },
			"PE 0: Bcast(4 elements of 4 bytes, root 0); PEs 1, 2: Bcast(5 "},
		{"operations on slices", func(ctx context.Context, t *Team, a, b Sym[int32]) error {
			return AllReduce(ctx, t, make([]int32, 4), Min)
		}, func(ctx context.Context, t *Team, a, b Sym[int32]) error {
			return AllReduce(ctx, t, make([]int32, 4), Max)
		}, "AllReduce(4 elements of 4 bytes, op(3, 5) is 0x3 0x0 in memory)"},
		{"sum and destroy", func(ctx context.Context, t *Team, a, b Sym[int32]) error { return SumReduce(ctx, t, b, a.Slice(0, 1)) },
			func(ctx context.Context, t *Team, a, b Sym[int32]) error { return t.Destroy(ctx) }, "Destroy()"},
	}
	for mode, opts := range modes {
		t.Run(mode, func(t *testing.T) {
			run(t, 3, "mem:debug-"+mode, opts, func(w *World) {
				ctx := context.Background()
				a, err := AllocZeroed[int32](ctx, w, 20)
				require.NoError(t, err)
				b, err := AllocZeroed[int32](ctx, w, 20)
				require.NoError(t, err)
				part, err := w.Team().SplitStrided(ctx, 0, 1, 3)
				require.NoError(t, err)
				for _, tt := range tests {
					team := w.Team()
					if tt.name == "sum and destroy" {
						team = part
					}
					call := tt.first
					if w.PE() > 0 {
						call = tt.last
					}
					err := call(ctx, team, a, b)
					require.ErrorIs(t, err, ErrMismatch, tt.name)
					require.ErrorContains(t, err, tt.want, tt.name)
					// The team remains usable.
					require.NoError(t, SumReduce(ctx, team, b, a.Slice(0, 20)), tt.name)
					require.NoError(t, Collect(ctx, team, b, a.Slice(0, w.PE())), tt.name) // these may differ
				}
			})
		})
	}
}

func TestAMismatchNamesAFewCallsOnly(t *testing.T) {
	run(t, 7, "mem:debugmany", []Option{Debug()}, func(w *World) {
		a, err := AllocZeroed[int64](context.Background(), w, 20)
		require.NoError(t, err)
		err = SumReduce(context.Background(), w.Team(), a, a.Slice(0, max(1, w.PE())))
		require.ErrorIs(t, err, ErrMismatch)
		require.ErrorContains(t, err, "PEs 0, 1: SumReduce(dst at ")
		require.ErrorContains(t, err, "; 2 other calls")
	})
}

func TestCollectivesInDebugMode(t *testing.T) {
	run(t, 3, "mem:debugall", []Option{Debug()}, func(w *World) {
		try(t, w.Team(), bitwiseToo[int32](), []int{0, 1, 100}, 1, 80)
	})
}

func TestCallersOfCollectivesAreToldOfMistakes(t *testing.T) {
	run(t, 2, "mem:mistakes", nil, func(w *World) {
		ctx, team := context.Background(), w.Team()
		a, err := Alloc[int32](ctx, w, 10)
		require.NoError(t, err)
		b, err := Alloc[int32](ctx, w, 10)
		require.NoError(t, err)
		for name, f := range map[string]func() error{
			"root":             func() error { return Broadcast(ctx, team, a, b.Slice(0, 1), 2) },
			"negative root":    func() error { return Broadcast(ctx, team, a, b.Slice(0, 1), -1) },
			"dst":              func() error { return Broadcast(ctx, team, a.Slice(0, 5), b.Slice(0, 6), 0) },
			"overlap":          func() error { return Broadcast(ctx, team, a.From(1), a.Slice(0, 5), 0) },
			"fcollect":         func() error { return FCollect(ctx, team, a, b.Slice(0, 6)) },
			"fcollect overlap": func() error { return FCollect(ctx, team, a, a.Slice(0, 5)) },
			"alltoall":         func() error { return AlltoAll(ctx, team, a, b.Slice(0, 9)) },
			"alltoall dst":     func() error { return AlltoAll(ctx, team, a.Slice(0, 9), b) },
			"stride":           func() error { return AlltoAllS(ctx, team, a, b.Slice(0, team.NPEs()), 0, 1) },
			"strides":          func() error { return AlltoAllS(ctx, team, a, b.Slice(0, team.NPEs()), 10, 1) },
			"huge stride":      func() error { return AlltoAllS(ctx, team, a, b, 1, 1<<62) },
			"sum":              func() error { return SumReduce(ctx, team, a.From(5), b.Slice(0, 6)) },
			"bcast":            func() error { return Bcast(ctx, team, []int32{1}, 2) },
			"bcast of none":    func() error { return Bcast(ctx, nil, []int32{1}, 0) },
			"allreduce none":   func() error { return AllReduce(ctx, nil, []int32{1}, Sum) },
			"sum overlap":      func() error { return SumReduce(ctx, team, a.From(5), a.Slice(0, 6)) },
			"min":              func() error { return MinReduce(ctx, team, a.Slice(0, 9), b) },
		} {
			require.Panics(t, func() { _ = f() }, name)
		}
		// These calls exchange messages first.
		require.Panics(t, func() { _ = Collect(ctx, team, a, b.Slice(0, 6)) })
		require.Panics(t, func() { _ = Collect(ctx, team, a, a.Slice(0, 5)) })
		require.NoError(t, AlltoAllS(ctx, team, a, b.Slice(0, team.NPEs()), 9, 1)) // just fits
		require.NoError(t, team.Sync(ctx))
	})
}
