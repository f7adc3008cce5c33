package shmem

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSplitStridedMakesTheTeamThatIsAskedFor(t *testing.T) {
	each(t, []int{1, 2, 4}, func(t *testing.T, w *World) {
		ctx, n := context.Background(), w.NumPEs()
		for start := range n {
			for stride := -n; stride <= n; stride++ {
				for size := 1; size <= n; size++ {
					last := start + stride*(size-1)
					team, err := w.Team().SplitStrided(ctx, start, stride, size)
					if last < 0 || last >= n || stride == 0 && size > 1 {
						require.Error(t, err)
						require.Nil(t, team)
						continue
					}
					require.NoError(t, err, "%d %d %d", start, stride, size)
					me := -1
					for i := range size {
						if start+i*stride == w.PE() {
							me = i
						}
					}
					require.Equal(t, me, team.MyPE())
					if me < 0 {
						require.Nil(t, team)
						continue
					}
					require.Equal(t, size, team.NPEs())
					for i := range size {
						require.Equal(t, start+i*stride, team.TranslatePE(i, w.Team()))
						require.Equal(t, i, w.Team().TranslatePE(start+i*stride, team))
					}
					require.NoError(t, team.Sync(ctx))
					require.NoError(t, team.Destroy(ctx))
				}
			}
		}
	})
}

func TestSplitRefusesWhatIsNoTeamOnAllPEs(t *testing.T) {
	each(t, []int{1, 3}, func(t *testing.T, w *World) {
		ctx := context.Background()
		for _, bad := range [][3]int{{-1, 1, 1}, {3, 1, 1}, {0, 1, 0}, {0, 1, -1}, {0, 1, 4}, {0, 0, 2}, {0, 1 << 62, 3}, {1, 1, 1 << 62}, {0, -1 << 63, 2}} {
			team, err := w.Team().SplitStrided(ctx, bad[0], bad[1], bad[2])
			require.Error(t, err, "%v", bad)
			require.NotErrorIs(t, err, ErrMismatch)
			require.Nil(t, team)
		}
		_, _, err := w.Team().Split2D(ctx, 0)
		require.Error(t, err)
		require.NoError(t, w.Team().Sync(ctx))
	})
}

func TestSplitTellsPEsThatPassDifferentArguments(t *testing.T) {
	each(t, []int{2, 4}, func(t *testing.T, w *World) {
		ctx := context.Background()
		_, err := w.Team().SplitStrided(ctx, 0, 1, 1+w.PE()%2)
		require.ErrorIs(t, err, ErrMismatch)
		require.ErrorContains(t, err, "SplitStrided(start 0, stride 1, size 2)")
		_, err = w.Team().SplitStrided(ctx, 0, 1, 1-2*(w.PE()%2)) // some PEs pass invalid arguments
		require.ErrorIs(t, err, ErrMismatch)
		_, _, err = w.Team().Split2D(ctx, 1+w.PE()%2)
		require.ErrorIs(t, err, ErrMismatch)
		if w.PE() == 0 {
			_, err = w.Team().SplitStrided(ctx, 0, 1, 1)
		} else {
			_, err = Alloc[int32](ctx, w, 1)
		}
		require.ErrorIs(t, err, ErrMismatch)
		require.NoError(t, w.Team().Sync(ctx))
	})
}

func TestSplit2DMakesRowsAndColumns(t *testing.T) {
	each(t, []int{1, 2, 3, 4, 7}, func(t *testing.T, w *World) {
		ctx, n := context.Background(), w.NumPEs()
		for xrange := 1; xrange <= n+2; xrange++ {
			x, y, err := w.Team().Split2D(ctx, xrange, TeamConfig{1}, TeamConfig{2})
			require.NoError(t, err)
			width := min(xrange, n)
			require.Equal(t, w.PE()%width, x.MyPE())
			require.Equal(t, w.PE()/width, y.MyPE())
			require.Equal(t, min(width, n-w.PE()/width*width), x.NPEs())
			require.Equal(t, (n-w.PE()%width+width-1)/width, y.NPEs())
			require.Equal(t, TeamConfig{1}, x.Config())
			require.Equal(t, TeamConfig{2}, y.Config())
			for i := range x.NPEs() {
				require.Equal(t, w.PE()/width*width+i, x.TranslatePE(i, w.Team()))
			}
			for i := range y.NPEs() {
				require.Equal(t, w.PE()%width+i*width, y.TranslatePE(i, w.Team()))
			}
			require.NoError(t, x.Sync(ctx))
			require.NoError(t, y.Sync(ctx))
			require.NoError(t, y.Destroy(ctx))
			require.NoError(t, x.Destroy(ctx))
		}
	})
}

func TestANilTeamIsNone(t *testing.T) {
	run(t, 1, "mem:niltm", nil, func(w *World) {
		var none *Team
		ctx := context.Background()
		require.Equal(t, -1, none.MyPE())
		require.Equal(t, -1, none.NPEs())
		require.Equal(t, -1, none.TranslatePE(0, w.Team()))
		require.Equal(t, -1, w.Team().TranslatePE(0, none))
		require.Equal(t, -1, w.Team().TranslatePE(1, w.Team()))
		require.NoError(t, none.Destroy(ctx))
		_, err := none.SplitStrided(ctx, 0, 1, 1)
		require.Error(t, err)
		_, _, err = none.Split2D(ctx, 1)
		require.Error(t, err)
		require.Panics(t, func() { _ = none.Sync(ctx) })
		require.Panics(t, func() { _ = none.Barrier(ctx) })
		require.Panics(t, func() { none.NewCtx() })
		require.Panics(t, func() { _ = Broadcast(ctx, none, Sym[int8]{}, Sym[int8]{}.Slice(0, 0), 0) })
		require.Panics(t, func() { _ = w.Team().Destroy(ctx) })
		require.Panics(t, func() { _ = w.SharedTeam().Destroy(ctx) })
	})
}

func TestAPEIsInAsManyTeamsAsThereIsRoomFor(t *testing.T) {
	each(t, []int{1, 3}, func(t *testing.T, w *World) {
		ctx, n := context.Background(), w.NumPEs()
		var all []*Team
		for range 64 {
			team, err := w.Team().SplitStrided(ctx, 0, 1, n)
			require.NoError(t, err)
			all = append(all, team)
		}
		_, err := w.Team().SplitStrided(ctx, 0, 1, n)
		require.ErrorIs(t, err, ErrTooManyTeams)
		_, _, err = w.Team().Split2D(ctx, 2)
		require.ErrorIs(t, err, ErrTooManyTeams)
		for i, team := range all {
			require.NoError(t, team.Sync(ctx), "team %d", i)
		}
		require.NoError(t, all[17].Destroy(ctx))
		// There is a slot for x, but none for y. Afterwards none is taken.
		_, _, err = w.Team().Split2D(ctx, 2)
		require.ErrorIs(t, err, ErrTooManyTeams)
		again, err := w.Team().SplitStrided(ctx, 0, 1, n)
		require.NoError(t, err)
		require.NoError(t, again.Sync(ctx))
		require.Panics(t, func() { _ = all[17].Sync(ctx) })
	})
}

func TestTeamsOfTeams(t *testing.T) {
	each(t, []int{7}, func(t *testing.T, w *World) {
		ctx := context.Background()
		number, err := Alloc[int64](ctx, w, 1)
		require.NoError(t, err)
		number.Local()[0] = int64(w.PE())
		a, err := w.Team().SplitStrided(ctx, 6, -1, 6) // 6 5 4 3 2 1
		require.NoError(t, err)
		if a == nil {
			return
		}
		b, err := a.SplitStrided(ctx, 1, 2, 3) // 5 3 1
		require.NoError(t, err)
		require.NoError(t, a.Destroy(ctx))
		if b == nil {
			return
		}
		require.Equal(t, []int{5, 3, 1}, b.core.PEs())
		for pe, want := range b.core.PEs() {
			require.Equal(t, want, b.TranslatePE(pe, w.Team()))
		}
		c := b.NewCtx()
		require.Equal(t, b, c.Team())
		require.Equal(t, int64(5), G(c, number, 0, 0))
		require.NoError(t, c.Close())
		x, y, err := b.Split2D(ctx, 2)
		require.NoError(t, err)
		require.NoError(t, x.Sync(ctx))
		require.NoError(t, y.Sync(ctx))
	})
}

// TestTeamsComeAndGo makes and destroys teams that have PEs in common. Their
// collectives are under way at once. So work areas are used again while others are in
// use.
func TestTeamsComeAndGo(t *testing.T) {
	each(t, []int{3, 4}, func(t *testing.T, w *World) {
		ctx, n := context.Background(), w.NumPEs()
		rng := rand.New(rand.NewPCG(testSeed, 1)) // yields the same numbers at all PEs
		own := rand.New(rand.NewPCG(testSeed, uint64(2+w.PE())))
		a, err := Alloc[int64](ctx, w, 4*n)
		require.NoError(t, err)
		b, err := Alloc[int64](ctx, w, 4*n)
		require.NoError(t, err)
		for range 60 {
			start, size := rng.IntN(n), 1+rng.IntN(n)
			stride := 1
			if start+size > n {
				start, stride = n-1, -1
			}
			first, err := w.Team().SplitStrided(ctx, start, stride, size)
			require.NoError(t, err)
			x, y, err := w.Team().Split2D(ctx, 1+rng.IntN(n))
			require.NoError(t, err)
			for _, team := range []*Team{x, first, y} {
				if team == nil {
					continue
				}
				for pe := range a.Local() {
					a.Local()[pe] = int64(w.PE()*1000 + pe)
				}
				require.NoError(t, FCollect(ctx, team, b, a.Slice(0, 4)))
				for i, pe := range team.core.PEs() {
					require.Equal(t, []int64{int64(pe * 1000), int64(pe*1000 + 1), int64(pe*1000 + 2), int64(pe*1000 + 3)}, b.Local()[4*i:4*i+4], "seed %d", testSeed)
				}
				if own.IntN(3) == 0 {
					time.Sleep(time.Duration(own.IntN(100)) * time.Microsecond)
				}
				require.NoError(t, team.Destroy(ctx))
			}
		}
	})
}

func TestTeamsAreUsedAtOnce(t *testing.T) {
	each(t, []int{2, 3, 4}, func(t *testing.T, w *World) {
		ctx, n := context.Background(), w.NumPEs()
		all, err := w.Team().SplitStrided(ctx, 0, 1, n)
		require.NoError(t, err)
		down, err := w.Team().SplitStrided(ctx, n-1, -1, n)
		require.NoError(t, err)
		var objects [4]Sym[float64]
		for i := range objects {
			objects[i], err = AllocZeroed[float64](ctx, w, 400*n)
			require.NoError(t, err)
		}
		var wg sync.WaitGroup
		for i, team := range []*Team{all, down} {
			wg.Go(func() {
				tryWith(t, team, objects[2*i], objects[2*i+1], arithmetic[float64](), []int{1, 6, 350}, 8, uint64(40+i), fmt.Sprint("team ", i))
				// They are split at the same time, too.
				for range 10 {
					x, y, err := team.Split2D(ctx, 2)
					require.NoError(t, err)
					require.NoError(t, x.Sync(ctx))
					require.NoError(t, y.Destroy(ctx))
					require.NoError(t, x.Destroy(ctx))
				}
			})
		}
		wg.Wait()
	})
}

func TestCollectivesOfASubTeam(t *testing.T) {
	each(t, []int{4, 7}, func(t *testing.T, w *World) {
		ctx := context.Background()
		team, err := w.Team().SplitStrided(ctx, w.NumPEs()-1, -2, (w.NumPEs()+1)/2)
		require.NoError(t, err)
		a, err := Alloc[int32](ctx, w, 1000)
		require.NoError(t, err)
		b, err := AllocZeroed[int32](ctx, w, 1000)
		require.NoError(t, err)
		if team != nil {
			tryWith(t, team, a, b, bitwiseToo[int32](), []int{1, 3, 13, 100}, 3, 50, "odd ones")
		}
		require.NoError(t, w.Team().Sync(ctx))
	})
}

func TestTheSharedTeamIsThoseThatAreMappedToEachOther(t *testing.T) {
	run(t, 4, "mem:near", nil, func(w *World) {
		require.Equal(t, 4, w.SharedTeam().NPEs())
		require.Equal(t, w.PE(), w.SharedTeam().MyPE())
		require.NoError(t, w.SharedTeam().Sync(context.Background()))
	})
	run(t, 3, "mem:strict", []Option{Strict()}, func(w *World) {
		require.Equal(t, []int{w.PE()}, w.SharedTeam().core.PEs())
		require.Zero(t, w.SharedTeam().MyPE())
		require.NoError(t, w.SharedTeam().Sync(context.Background()))
	})
	// One PE alone is strict.
	var wg sync.WaitGroup
	for pe := range 4 {
		wg.Go(func() {
			opts := []Option{PE(pe, 4, t.Name()), Fabric("mem:some"), HeapLimit(1 << 20)}
			if pe == 1 {
				opts = append(opts, Strict())
			}
			w, err := Open(context.Background(), opts...)
			if err != nil {
				t.Error(err)
				return
			}
			want := []int{0, 2, 3}
			if pe == 1 {
				want = []int{1}
			}
			require.Equal(t, want, w.SharedTeam().core.PEs())
			a, err := Alloc[int32](context.Background(), w, 1000)
			require.NoError(t, err)
			b, err := AllocZeroed[int32](context.Background(), w, 1000)
			require.NoError(t, err)
			tryWith(t, w.Team(), a, b, bitwiseToo[int32](), []int{1, 100}, 1, 60, "one strict")
			require.NoError(t, w.Close(context.Background()))
		})
	}
	wg.Wait()
}

func TestACollectiveThatWasGivenUpEndsTheTeam(t *testing.T) {
	run(t, 2, "mem:givenup", nil, func(w *World) {
		team, err := w.Team().SplitStrided(context.Background(), 0, 1, 2)
		require.NoError(t, err)
		if w.PE() == 0 {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
			defer cancel()
			require.ErrorIs(t, team.Sync(ctx), context.DeadlineExceeded)
			require.ErrorIs(t, team.Sync(context.Background()), context.DeadlineExceeded)
		}
		require.NoError(t, w.Team().Sync(context.Background()))
	})
}
