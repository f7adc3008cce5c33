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
		return func(ctx context.Context, t *Team, a, b Sym[int32]) error { return Broadcast(ctx, t, b, a, n, root) }
	}
	tests := []struct {
		name        string
		first, last calls // calls of PE 0, and of the others
		want        string
	}{
		{"roots", broadcast(1, 0), broadcast(1, 1), "PE 0: Broadcast(root 0, "},
		{"numbers", broadcast(1, 1), broadcast(2, 1), ", n 2)"},
		{"objects", broadcast(1, 1), func(ctx context.Context, t *Team, a, b Sym[int32]) error {
			return Broadcast(ctx, t, b, a.From(1), 1, 1)
		}, "src at "},
		{"types", broadcast(4, 0), func(ctx context.Context, t *Team, a, b Sym[int32]) error {
			return Broadcast(ctx, t, Sym[int8]{b.w, b.off, 4}, Sym[int8]{a.w, a.off, 4}, 4, 0)
		}, "elements of 1 bytes"},
		{"operations", func(ctx context.Context, t *Team, a, b Sym[int32]) error { return MinReduce(ctx, t, b, a, 1) },
			func(ctx context.Context, t *Team, a, b Sym[int32]) error { return MaxReduce(ctx, t, b, a, 1) }, "PE 0: MinReduce("},
		{"strides", func(ctx context.Context, t *Team, a, b Sym[int32]) error { return AlltoAllS(ctx, t, b, a, 1, 2, 1) },
			func(ctx context.Context, t *Team, a, b Sym[int32]) error { return AlltoAllS(ctx, t, b, a, 2, 1, 1) }, "AlltoAllS(strides 1 and 2, "},
		{"sync and barrier", sync, barrier, "PE 0: Sync()"},
		{"sync and broadcast", sync, broadcast(1, 0), "PE 0: Sync()"},
		{"broadcast and alloc", broadcast(1, 0), func(ctx context.Context, t *Team, a, b Sym[int32]) error {
			_, err := Alloc[int32](a.w, 5)
			return err
		}, "Alloc(20 bytes, aligned to 64)"},
		{"collect and fcollect", func(ctx context.Context, t *Team, a, b Sym[int32]) error { return Collect(ctx, t, b, a, 1) },
			func(ctx context.Context, t *Team, a, b Sym[int32]) error { return FCollect(ctx, t, b, a, 1) }, "PE 0: Collect("},
		{"split and alltoall", func(ctx context.Context, t *Team, a, b Sym[int32]) error {
			_, _, err := t.Split2D(ctx, 2)
			return err
		}, func(ctx context.Context, t *Team, a, b Sym[int32]) error { return AlltoAll(ctx, t, b, a, 1) }, "PE 0: Split2D(xrange 2)"},
		{"sum and destroy", func(ctx context.Context, t *Team, a, b Sym[int32]) error { return SumReduce(ctx, t, b, a, 1) },
			func(ctx context.Context, t *Team, a, b Sym[int32]) error { return t.Destroy(ctx) }, "Destroy()"},
	}
	for mode, opts := range modes {
		t.Run(mode, func(t *testing.T) {
			run(t, 3, "mem:debug-"+mode, opts, func(w *World) {
				ctx := context.Background()
				a, err := AllocZeroed[int32](w, 20)
				require.NoError(t, err)
				b, err := AllocZeroed[int32](w, 20)
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
					require.NoError(t, SumReduce(ctx, team, b, a, 20), tt.name)
					require.NoError(t, Collect(ctx, team, b, a, w.PE()), tt.name) // these may differ
				}
			})
		})
	}
}

func TestAMismatchNamesAFewCallsOnly(t *testing.T) {
	run(t, 7, "mem:debugmany", []Option{Debug()}, func(w *World) {
		a, err := AllocZeroed[int64](w, 20)
		require.NoError(t, err)
		err = SumReduce(context.Background(), w.Team(), a, a, max(1, w.PE()))
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
		a, err := Alloc[int32](w, 10)
		require.NoError(t, err)
		b, err := Alloc[int32](w, 10)
		require.NoError(t, err)
		for name, f := range map[string]func() error{
			"root":             func() error { return Broadcast(ctx, team, a, b, 1, 2) },
			"negative root":    func() error { return Broadcast(ctx, team, a, b, 1, -1) },
			"negative n":       func() error { return Broadcast(ctx, team, a, b, -1, 0) },
			"src":              func() error { return Broadcast(ctx, team, a, b.Slice(0, 5), 6, 0) },
			"dst":              func() error { return Broadcast(ctx, team, a.Slice(0, 5), b, 6, 0) },
			"overlap":          func() error { return Broadcast(ctx, team, a.From(1), a, 5, 0) },
			"fcollect":         func() error { return FCollect(ctx, team, a, b, 6) },
			"fcollect overlap": func() error { return FCollect(ctx, team, a, a, 5) },
			"alltoall":         func() error { return AlltoAll(ctx, team, a, b.Slice(0, 9), 5) },
			"alltoall dst":     func() error { return AlltoAll(ctx, team, a.Slice(0, 9), b, 5) },
			"stride":           func() error { return AlltoAllS(ctx, team, a, b, 0, 1, 1) },
			"strides":          func() error { return AlltoAllS(ctx, team, a, b, 10, 1, 1) },
			"huge stride":      func() error { return AlltoAllS(ctx, team, a, b, 1, 1<<62, 2) },
			"sum":              func() error { return SumReduce(ctx, team, a.From(5), b, 6) },
			"sum overlap":      func() error { return SumReduce(ctx, team, a.From(5), a, 6) },
			"min":              func() error { return MinReduce(ctx, team, a, b, 11) },
		} {
			require.Panics(t, func() { _ = f() }, name)
		}
		// These calls exchange messages first.
		require.Panics(t, func() { _ = Collect(ctx, team, a, b, 6) })
		require.Panics(t, func() { _ = Collect(ctx, team, a, a, 5) })
		require.NoError(t, AlltoAllS(ctx, team, a, b, 9, 1, 1)) // just fits
		require.NoError(t, team.Sync(ctx))
	})
}
