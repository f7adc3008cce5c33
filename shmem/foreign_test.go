package shmem

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// Each PE passes an object of just its own elements.
func TestCollectOfBlocksThatDiffer(t *testing.T) {
	each(t, []int{1, 2, 3, 4}, func(t *testing.T, w *World) {
		ctx := context.Background()
		const most = 3000 // bytes of a block that does not fit a message
		a, err := AllocZeroed[int32](ctx, w, most)
		require.NoError(t, err)
		b, err := AllocZeroed[int32](ctx, w, most*w.NumPEs())
		require.NoError(t, err)
		for _, unit := range []int{1, most / w.NumPEs()} {
			for shift := range w.NumPEs() { // one PE has none
				var want []int32
				for pe := range w.NumPEs() {
					n := (pe + shift) % w.NumPEs() * unit
					part := numbers[int32](n, 1000*pe+unit)
					want = append(want, part...)
					if pe == w.PE() {
						copy(a.Local(), part)
					}
				}
				n := (w.PE() + shift) % w.NumPEs() * unit
				src := a.Slice(0, n)
				if n == 0 && unit > 1 {
					src = Sym[int32]{} // it has nothing to pass
				}
				require.NoError(t, Collect(ctx, w.Team(), b, src.Slice(0, n)))
				require.Equal(t, want, append([]int32(nil), b.Local()[:len(want)]...))
				require.NoError(t, w.Team().Barrier(ctx))
			}
		}
	})
}

// An object belongs to one World. At its offset another World's heap has something
// else, or ends before it.
func TestAnObjectOfAnotherWorldIsRefused(t *testing.T) {
	const message = "shmem: object of another World"
	run(t, 2, "mem:mine", nil, func(w *World) {
		other, err := Open(context.Background(), PE(0, 1, "other"), HeapLimit(64<<20))
		require.NoError(t, err)
		big, err := Alloc[uint64](context.Background(), other, 4<<20)
		require.NoError(t, err)
		far := big.From(big.Len() - 10) // outside of w's heap
		own, err := AllocZeroed[uint64](context.Background(), w, 10)
		require.NoError(t, err)
		flat := make([]uint64, 10)
		ctx, c, pe, team := context.Background(), w.Ctx(), 1-w.PE(), w.Team()
		for name, f := range map[string]func(){
			"Put":          func() { Put(c, far, flat, pe) },
			"PutNBI":       func() { PutNBI(c, far, flat, pe) },
			"Put of one":   func() { Put(c, far, flat[:1], pe) },
			"Put of none":  func() { Put(c, far, nil, pe) },
			"Get":          func() { Get(c, flat, far, pe) },
			"GetNBI":       func() { GetNBI(c, flat, far, pe) },
			"P":            func() { P(c, far, 0, 1, pe) },
			"G":            func() { G(c, far, 0, pe) },
			"TryG":         func() { _, _ = TryG(c, far, 0, pe) },
			"IPut":         func() { IPut(c, far, 2, flat, 2, 3, pe) },
			"IGet":         func() { IGet(c, flat, 2, far, 2, 3, pe) },
			"IBPut":        func() { IBPut(c, far, 2, flat, 2, 2, 3, pe) },
			"IBGet":        func() { IBGet(c, flat, 2, far, 2, 2, 3, pe) },
			"fetch":        func() { AtomicFetch(c, far, 0, pe) },
			"set":          func() { AtomicSet(c, far, 0, 1, pe) },
			"swap":         func() { AtomicSwap(c, far, 0, 1, pe) },
			"cswap":        func() { AtomicCompareSwap(c, far, 0, 1, 1, pe) },
			"fetch add":    func() { AtomicFetchAdd(c, far, 0, 1, pe) },
			"add":          func() { AtomicAdd(c, far, 0, 1, pe) },
			"fetch inc":    func() { AtomicFetchInc(c, far, 0, pe) },
			"inc":          func() { AtomicInc(c, far, 0, pe) },
			"fetch and":    func() { AtomicFetchAnd(c, far, 0, 1, pe) },
			"and":          func() { AtomicAnd(c, far, 0, 1, pe) },
			"fetch or":     func() { AtomicFetchOr(c, far, 0, 1, pe) },
			"or":           func() { AtomicOr(c, far, 0, 1, pe) },
			"fetch xor":    func() { AtomicFetchXor(c, far, 0, 1, pe) },
			"xor":          func() { AtomicXor(c, far, 0, 1, pe) },
			"fetch nbi":    func() { AtomicFetchNBI(c, &flat[0], far, 0, pe) },
			"swap nbi":     func() { AtomicSwapNBI(c, &flat[0], far, 0, 1, pe) },
			"cswap nbi":    func() { AtomicCompareSwapNBI(c, &flat[0], far, 0, 1, 1, pe) },
			"add nbi":      func() { AtomicFetchAddNBI(c, &flat[0], far, 0, 1, pe) },
			"inc nbi":      func() { AtomicFetchIncNBI(c, &flat[0], far, 0, pe) },
			"and nbi":      func() { AtomicFetchAndNBI(c, &flat[0], far, 0, 1, pe) },
			"or nbi":       func() { AtomicFetchOrNBI(c, &flat[0], far, 0, 1, pe) },
			"xor nbi":      func() { AtomicFetchXorNBI(c, &flat[0], far, 0, 1, pe) },
			"signal":       func() { PutSignal(c, own, flat, far, 1, SignalSet, pe) },
			"signal data":  func() { PutSignal(c, far, flat, own, 1, SignalSet, pe) },
			"broadcast":    func() { _ = Broadcast(ctx, team, far, own.Slice(0, 1), 0) },
			"broadcast of": func() { _ = Broadcast(ctx, team, own, far.Slice(0, 1), 0) },
			"collect":      func() { _ = Collect(ctx, team, far, own.Slice(0, 1)) },
			"fcollect":     func() { _ = FCollect(ctx, team, far, own.Slice(0, 1)) },
			"alltoall":     func() { _ = AlltoAll(ctx, team, far, own.Slice(0, team.NPEs())) },
			"reduction":    func() { _ = SumReduce(ctx, team, far, own.Slice(0, 1)) },
			"realloc":      func() { _, _ = Realloc(ctx, w, far, 10) },
		} {
			require.PanicsWithValue(t, message, f, name)
		}
		require.Equal(t, make([]uint64, 10), own.Local(), "half of a call was done")
		// An object without elements belongs to no World.
		Put(c, Sym[uint64]{}, nil, pe)
		Get(c, nil, Sym[uint64]{}, pe)
		require.NoError(t, team.Barrier(ctx))
		require.NoError(t, other.Close(ctx))
	})
}
