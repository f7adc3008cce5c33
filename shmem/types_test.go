package shmem

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Each operation is tried with each type that it takes, on each way to another PE.

func init() {
	bodies["puts and gets of all types"] = func(t require.TestingT, w *World) {
		rma[int8](t, w)
		rma[int16](t, w)
		rma[int32](t, w)
		rma[int64](t, w)
		rma[int](t, w)
		rma[uint8](t, w)
		rma[uint16](t, w)
		rma[uint32](t, w)
		rma[uint64](t, w)
		rma[uint](t, w)
		rma[uintptr](t, w)
		rma[float32](t, w)
		rma[float64](t, w)
		rma[complex64](t, w)
		rma[complex128](t, w)
	}
	bodies["atomics of all types"] = func(t require.TestingT, w *World) {
		amos[int32](t, w)
		amos[int64](t, w)
		amos[int](t, w)
		amos[uint32](t, w)
		amos[uint64](t, w)
		amos[uint](t, w)
		amos[uintptr](t, w)
		extended[float32](t, w)
		extended[float64](t, w)
	}
	bodies["waits"] = waits
	bodies["goroutines"] = goroutines
}

func TestOperations(t *testing.T) {
	for _, name := range []string{"puts and gets of all types", "atomics of all types", "waits", "goroutines"} {
		t.Run(name, func(t *testing.T) {
			each(t, []int{1, 2, 3}, func(t *testing.T, w *World) { bodies[name](t, w) })
			for mode := range modes {
				t.Run("processes/"+mode, func(t *testing.T) { processes(t, name, 2, mode, nil) })
			}
			t.Run("ring", func(t *testing.T) { processes(t, name, 4, "mapped", ringOf(4)) })
		})
	}
}

// number returns a value of any type that depends on i.
func number[T Elem](i int) (v T) {
	switch p := any(&v).(type) {
	case *complex64:
		*p = complex(float32(i), float32(-i))
	case *complex128:
		*p = complex(float64(i), float64(-i))
	default:
		b := bytesAt(&v)
		for j := range b {
			b[j] = byte(i >> (8 * (j % 2)))
		}
		if _, is := any(v).(float32); is {
			b[3] &= 0x3f // no NaN, which would not be equal to itself
		}
		if _, is := any(v).(float64); is {
			b[7] &= 0x3f
		}
	}
	return v
}

func numbers[T Elem](n, from int) []T {
	s := make([]T, n)
	for i := range s {
		s[i] = number[T](from + i)
	}
	return s
}

// rma puts to the PE two further, which is not a neighbour in a ring of four, and gets
// from it what was put.
func rma[T Elem](t require.TestingT, w *World) {
	const n = 17_000 // more than one request of the larger types
	ctx, c := context.Background(), w.Ctx()
	to := (w.PE() + 2) % w.NumPEs()
	from := (w.PE() + 2*w.NumPEs() - 2) % w.NumPEs()
	s, err := AllocZeroed[T](ctx, w, n)
	require.NoError(t, err)
	barrier := func() { require.NoError(t, w.Team().Barrier(ctx)) }
	mine, theirs := numbers[T](n, 1000*w.PE()+1), numbers[T](n, 1000*from+1)
	for _, size := range []int{0, 1, 2, 3, 27, n} {
		clear(s.Local())
		barrier()
		Put(c, s.From(n-size), mine[:size], to)
		barrier()
		require.Equal(t, theirs[:size], s.Local()[n-size:])
		require.Equal(t, make([]T, n-size), s.Local()[:n-size])
		got := make([]T, size)
		Get(c, got, s.From(n-size), to)
		require.Equal(t, mine[:size], got)
		clear(got)
		GetNBI(c, got, s.From(n-size), to)
		require.NoError(t, c.Quiet())
		require.Equal(t, mine[:size], got)
		barrier()
	}
	P(c, s, 5, mine[7], to)
	require.Equal(t, mine[7], G(c, s, 5, to))
	v, err := TryG(c, s, 5, to)
	require.NoError(t, err)
	require.Equal(t, mine[7], v)
	barrier()

	// Strided operations, also in blocks, over two elements to each.
	for _, block := range []int{1, 3} {
		clear(s.Local())
		barrier()
		const blocks = 2500
		IBPut(c, s, 2*block, mine, block, block, blocks, to)
		barrier()
		for i := range blocks * block {
			require.Equal(t, theirs[i], s.Local()[i/block*2*block+i%block])
		}
		require.Zero(t, s.Local()[block])
		got := make([]T, blocks*block)
		IBGet(c, got, block, s, 2*block, block, blocks, to)
		require.Equal(t, mine[:blocks*block], got)
		barrier()
	}
	IPut(c, s, 3, mine, 2, 10, to)
	got := make([]T, 20)
	IGet(c, got, 2, s, 3, 10, to)
	for i := range 10 {
		require.Equal(t, mine[2*i], got[2*i])
	}
	barrier()
	if p, ok := s.Ptr(to); ok {
		require.Equal(t, G(c, s, 0, to), p[0])
	}
	require.NoError(t, Free(ctx, s))
}

// amos does each atomic operation alone, and then many at the same time.
func amos[T AMO](t require.TestingT, w *World) {
	extended[T](t, w)
	ctx, c, n := context.Background(), w.Ctx(), w.NumPEs()
	s, err := AllocZeroed[T](ctx, w, 8)
	require.NoError(t, err)
	barrier := func() { require.NoError(t, w.Team().Barrier(ctx)) }
	to := (w.PE() + 2) % n
	AtomicSet(c, s, 1, 12, to)
	require.Equal(t, T(12), AtomicFetchAdd(c, s, 1, 5, to))
	require.Equal(t, T(17), AtomicCompareSwap(c, s, 1, 16, 1, to))
	require.Equal(t, T(17), AtomicCompareSwap(c, s, 1, 17, 0b1100, to))
	require.Equal(t, T(0b1100), AtomicFetchAnd(c, s, 1, 0b0110, to))
	require.Equal(t, T(0b0100), AtomicFetchOr(c, s, 1, 0b0011, to))
	require.Equal(t, T(0b0111), AtomicFetchXor(c, s, 1, 0b0101, to))
	require.Equal(t, T(0b0010), AtomicFetchInc(c, s, 1, to))
	AtomicInc(c, s, 1, to)
	AtomicAdd(c, s, 1, ^T(0), to) // subtracts 1
	AtomicAnd(c, s, 1, 0b1001, to)
	AtomicOr(c, s, 1, 0b0100, to)
	AtomicXor(c, s, 1, 0b1000, to)
	require.Equal(t, T(0b1101), AtomicFetch(c, s, 1, to))

	var old [8]T
	AtomicFetchNBI(c, &old[0], s, 1, to)
	AtomicSwapNBI(c, &old[1], s, 1, 20, to)
	AtomicCompareSwapNBI(c, &old[2], s, 1, 20, 30, to)
	AtomicFetchIncNBI(c, &old[3], s, 1, to)
	AtomicFetchAddNBI(c, &old[4], s, 1, 9, to)
	AtomicFetchAndNBI(c, &old[5], s, 1, 0b1100, to)
	AtomicFetchOrNBI(c, &old[6], s, 1, 0b0011, to)
	AtomicFetchXorNBI(c, &old[7], s, 1, 0b1111, to)
	require.NoError(t, c.Quiet())
	require.Equal(t, [8]T{0b1101, 13, 20, 30, 31, 40, 0b1000, 0b1011}, old)
	require.Equal(t, T(0b0100), AtomicFetch(c, s, 1, to))
	barrier()

	// All PEs use PE 0. The ways by which they reach it must be atomic with each
	// other.
	const rounds = 300
	seen := make([]T, 0, rounds)
	for i := range rounds {
		seen = append(seen, AtomicFetchInc(c, s, 2, 0))
		AtomicXor(c, s, 3, 1, 0)
		AtomicOr(c, s, 4, T(1)<<(w.PE()%30), 0)
		for { // an addition by compare-and-swap
			v := AtomicFetch(c, s, 5, 0)
			if AtomicCompareSwap(c, s, 5, v, v+1, 0) == v {
				break
			}
		}
		_ = i
	}
	barrier()
	for i := 1; i < len(seen); i++ {
		require.Less(t, seen[i-1], seen[i])
	}
	require.Equal(t, T(rounds*n), AtomicFetch(c, s, 2, 0))
	require.Equal(t, T(0), AtomicFetch(c, s, 3, 0))
	require.Equal(t, T(1)<<n-1, AtomicFetch(c, s, 4, 0))
	require.Equal(t, T(rounds*n), AtomicFetch(c, s, 5, 0))
	barrier()
	require.NoError(t, Free(ctx, s))
}

func extended[T ExtAMO](t require.TestingT, w *World) {
	c := w.Ctx()
	s, err := AllocZeroed[T](context.Background(), w, 3)
	require.NoError(t, err)
	to := (w.PE() + 2) % w.NumPEs()
	AtomicSet(c, s, 1, number[T](5), to)
	require.Equal(t, number[T](5), AtomicFetch(c, s, 1, to))
	require.Equal(t, number[T](5), AtomicSwap(c, s, 1, number[T](6), to))
	require.Equal(t, number[T](6), AtomicFetch(c, s, 1, to))
	require.Zero(t, AtomicFetch(c, s, 0, to))
	require.Zero(t, AtomicFetch(c, s, 2, to))
	require.NoError(t, w.Team().Barrier(context.Background()))
	require.NoError(t, Free(context.Background(), s))
}

// waits has each PE wait for what its neighbour stores, with every form of wait.
func waits(t require.TestingT, w *World) {
	ctx, c, n := context.Background(), w.Ctx(), w.NumPEs()
	s, err := AllocZeroed[int64](ctx, w, 6)
	require.NoError(t, err)
	ack, err := AllocZeroed[int32](ctx, w, 1)
	require.NoError(t, err)
	data, err := AllocZeroed[byte](ctx, w, 1000)
	require.NoError(t, err)
	sig, err := AllocZeroed[uint64](ctx, w, 1)
	require.NoError(t, err)
	to, from := (w.PE()+1)%n, (w.PE()+n-1)%n
	barrier := func() { require.NoError(t, w.Team().Barrier(ctx)) }
	skip := []bool{false, false, true, false, true, false}
	values := []int64{10, 11, 0, 13, 0, 15}

	require.False(t, Test(s, 1, Ne, 0))
	require.Equal(t, -1, TestAny(s, skip, Gt, 0))
	require.Empty(t, TestSome(nil, s, skip, Gt, 0))
	require.True(t, TestAll(s, skip, Eq, 0))
	barrier()
	AtomicSet(c, s, 3, 13, to)
	require.NoError(t, WaitUntil(ctx, s, 3, Eq, 13))
	i, err := WaitUntilAny(ctx, s, skip, Gt, 0)
	require.NoError(t, err)
	require.Equal(t, 3, i)
	found, err := WaitUntilSome(ctx, nil, s, skip, Gt, 0)
	require.NoError(t, err)
	require.Equal(t, []int{3}, found)
	i, err = WaitUntilAnyVector(ctx, s, skip, Eq, values)
	require.NoError(t, err)
	require.Equal(t, 3, i)
	require.Equal(t, []int{3}, TestSomeVector(nil, s, skip, Eq, values))
	require.Equal(t, 3, TestAnyVector(s, skip, Eq, values))
	require.False(t, TestAllVector(s, skip, Eq, values))
	barrier() // no PE stores more before all have read
	for _, i := range []int{5, 0, 1} {
		P(c, s, i, values[i], to)
	}
	require.NoError(t, WaitUntilAllVector(ctx, s, skip, Eq, values))
	require.NoError(t, WaitUntilAll(ctx, s, skip, Ge, 10))
	require.True(t, TestAllVector(s, skip, Eq, values))
	found, err = WaitUntilSomeVector(ctx, nil, s, skip, Eq, values)
	require.NoError(t, err)
	require.Equal(t, []int{0, 1, 3, 5}, found)
	all := []bool{true, true, true, true, true, true}
	require.NoError(t, WaitUntilAll(ctx, s, all, Eq, 99))
	i, err = WaitUntilAny(ctx, s, all, Eq, 99)
	require.NoError(t, err)
	require.Equal(t, -1, i)

	// Signals: a PE that has seen one finds the data.
	buf := make([]byte, data.Len())
	for round := 1; round <= 50; round++ {
		for i := range buf {
			buf[i] = byte(round + i + w.PE())
		}
		if round%2 == 0 {
			PutSignal(c, data, buf, sig, uint64(round), SignalSet, to)
		} else {
			PutSignalNBI(c, data, buf, sig, 1, SignalAdd, to)
		}
		got, err := SignalWaitUntil(ctx, sig, Ge, uint64(round))
		require.NoError(t, err)
		require.Equal(t, uint64(round), got)
		require.Equal(t, got, SignalFetch(sig))
		for i, b := range data.Local() {
			require.Equal(t, byte(round+i+from), b)
		}
		AtomicInc(c, ack, 0, from)
		require.NoError(t, WaitUntil(ctx, ack, 0, Ge, int32(round)))
	}
	barrier()
}

// goroutines has several goroutines of each PE use contexts of their own.
func goroutines(t require.TestingT, w *World) {
	const each, rounds = 4, 200
	n := w.NumPEs()
	s, err := AllocZeroed[int64](context.Background(), w, each)
	require.NoError(t, err)
	far := w.Team()
	errs := make(chan error, each)
	var wg sync.WaitGroup
	for g := range each {
		wg.Go(func() {
			c := far.NewCtx()
			var old int64
			for i := range rounds {
				pe := (w.PE() + i) % n
				AtomicAdd(c, s, g, 1, pe)
				AtomicFetchAddNBI(c, &old, s, g, 0, pe)
				if v := AtomicFetch(c, s, g, pe); v < 1 {
					errs <- fmt.Errorf("%d after an addition", v)
				}
			}
			if err := c.Close(); err != nil {
				errs <- err
			}
		})
	}
	wg.Wait()
	close(errs)
	require.NoError(t, <-errs)
	require.NoError(t, w.Team().Barrier(context.Background()))
	for _, v := range s.Local() {
		require.Equal(t, int64(rounds), v)
	}
	require.NoError(t, w.Team().Barrier(context.Background()))
}

// bytesAt returns the memory of one value.
func bytesAt[T Elem](p *T) []byte { return bytesOf(unsafe.Slice(p, 1)) }
