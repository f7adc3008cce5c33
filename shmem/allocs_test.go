//go:build !race

package shmem

import (
	"context"
	"testing"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/stretchr/testify/require"
)

// Operations do not allocate, on the caller's side or the server's.
func TestOperationsDoNotAllocate(t *testing.T) {
	if lock.Checked {
		t.Skip("checked locks allocate")
	}
	each(t, []int{2}, func(t *testing.T, w *World) {
		ctx, c := context.Background(), w.Ctx()
		s, err := AllocZeroed[uint64](ctx, w, 20_000)
		require.NoError(t, err)
		sig := s.From(19_999)
		small, large, got := make([]uint64, 3), make([]uint64, 9000), make([]uint64, 9000)
		var old uint64
		for name, op := range map[string]func(){
			"P":                 func() { P(c, s, 1, 2, 1) },
			"G":                 func() { G(c, s, 1, 1) },
			"TryG":              func() { _, _ = TryG(c, s, 1, 1) },
			"small Put":         func() { Put(c, s, small, 1) },
			"large Put":         func() { Put(c, s, large, 1) },
			"small Get":         func() { Get(c, got[:3], s, 1) },
			"large Get":         func() { Get(c, got, s, 1) },
			"Sym.P":             func() { s.P(1, 2, 1) },
			"Sym.G":             func() { s.G(1, 1) },
			"Sym.Put":           func() { s.Put(large, 1) },
			"Sym.Get":           func() { s.Get(got, 1) },
			"GetNBI":            func() { GetNBI(c, got, s, 1); _ = c.Quiet() },
			"PutSignal":         func() { PutSignal(c, s, small, sig, 1, SignalAdd, 1) },
			"IPut":              func() { IPut(c, s, 2, large, 3, 1000, 1) },
			"IGet":              func() { IGet(c, got, 2, s, 3, 1000, 1) },
			"AtomicAdd":         func() { AtomicAdd(c, s, 0, 1, 1) },
			"AtomicFetchAdd":    func() { AtomicFetchAdd(c, s, 0, 1, 1) },
			"AtomicCompareSwap": func() { AtomicCompareSwap(c, s, 0, 1, 2, 1) },
			"AtomicFetchXor":    func() { AtomicFetchXor(c, s, 0, 1, 1) },
			"AtomicSwapNBI":     func() { AtomicSwapNBI(c, &old, s, 0, 1, 1); _ = c.Quiet() },
			"Fence, Quiet":      func() { P(c, s, 1, 2, 1); c.Fence(); _ = c.Quiet() },
			"WaitUntil":         func() { _ = WaitUntil(ctx, s, 1, Ge, 0) },
			"Test":              func() { Test(s, 1, Ge, 0) },
		} {
			require.NoError(t, w.Team().Barrier(ctx))
			if w.PE() == 0 {
				if n := testing.AllocsPerRun(200, op); n != 0 {
					t.Errorf("%s: %v allocations", name, n)
				}
			}
		}
		require.NoError(t, c.Err())
		require.NoError(t, w.Team().Barrier(ctx))
	})
}

func TestCollectivesDoNotAllocate(t *testing.T) {
	if lock.Checked {
		t.Skip("checked locks allocate")
	}
	each(t, []int{2}, func(t *testing.T, w *World) {
		ctx, team := context.Background(), w.Team()
		s, err := AllocZeroed[uint64](ctx, w, 20_000)
		require.NoError(t, err)
		d, err := AllocZeroed[uint64](ctx, w, 20_000)
		require.NoError(t, err)
		buf := make([]uint64, 1000)
		// On a busy machine a wait may sleep, and a sleep may allocate. So the least of
		// several tries counts.
		const tries, runs = 5, 40
		for _, op := range []struct {
			name string
			do   func() error
		}{
			{"Sync", func() error { return team.Sync(ctx) }},
			{"Barrier", func() error { return team.Barrier(ctx) }},
			{"small Broadcast", func() error { return Broadcast(ctx, team, d, s.Slice(0, 1), 0) }},
			{"large Broadcast", func() error { return Broadcast(ctx, team, d, s.Slice(0, 1000), 0) }},
			{"small SumReduce", func() error { return SumReduce(ctx, team, d, s.Slice(0, 1)) }},
			{"large SumReduce", func() error { return SumReduce(ctx, team, d, s.Slice(0, 1000)) }},
			{"small Bcast", func() error { return Bcast(ctx, team, buf[:1], 0) }},
			{"large Bcast", func() error { return Bcast(ctx, team, buf, 0) }},
			{"small AllReduce", func() error { return AllReduce(ctx, team, buf[:1], Sum) }},
			{"large AllReduce", func() error { return AllReduce(ctx, team, buf, Max) }},
			{"AlltoAll", func() error { return AlltoAll(ctx, team, d, s.Slice(0, 1000*team.NPEs())) }},
			{"FCollect", func() error { return FCollect(ctx, team, d, s.Slice(0, 1000)) }},
		} {
			require.NoError(t, team.Barrier(ctx))
			if w.PE() == 1 {
				for range tries * (runs + 1) {
					require.NoError(t, op.do())
				}
				continue
			}
			var least float64
			for try := range tries {
				n := testing.AllocsPerRun(runs, func() {
					if err := op.do(); err != nil {
						t.Error(err)
					}
				})
				if try == 0 || n < least {
					least = n
				}
			}
			if least != 0 {
				t.Errorf("%s: %v allocations", op.name, least)
			}
		}
	})
}
