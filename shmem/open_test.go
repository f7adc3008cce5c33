package shmem

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
)

func TestBadOptionsAreErrors(t *testing.T) {
	for message, opts := range map[string][]Option{
		"shmem: open PE 2 of 2: PE 2 of 2: want 0 to 1":                              {PE(2, 2, "x")},
		"shmem: open PE 0 of 0: 0 PEs: want 1 to 1024":                               {PE(0, 0, "x")},
		"shmem: open PE 0 of 2000: 2000 PEs: want 1 to 1024":                         {PE(0, 2000, "x")},
		"shmem: open PE 0 of 1: symmetric heap of -5 bytes: want 1 to 1099511627776": {PE(0, 1, "x"), HeapLimit(-5)},
		"shmem: open PE 0 of 1: timeout of -1ns: want more than 0":                   {PE(0, 1, "x"), Timeout(-1)},
	} {
		_, err := Open(context.Background(), opts...)
		require.ErrorContains(t, err, message)
	}
	_, err := Open(context.Background(), PE(0, 2, "x"), Fabric("nonsense"))
	require.ErrorIs(t, err, syscall.EINVAL)
}

// openAll opens the PEs of one job with different options, and waits for each until timeout.
func openAll(t *testing.T, timeout time.Duration, opts ...[]Option) []error {
	leak.Check(t)
	name := "mem:" + fabrictest.Name(t)
	errs := make([]error, len(opts))
	var wg sync.WaitGroup
	for i, o := range opts {
		wg.Go(func() {
			w, err := Open(context.Background(), append([]Option{HeapLimit(8 << 20), Timeout(timeout), Fabric(name)}, o...)...)
			if errs[i] = err; err == nil {
				errs[i] = w.Close(context.Background())
			}
		})
	}
	wg.Wait()
	return errs
}

// atLast calls f with longer and longer times until it succeeds, since PEs come late
// on a busy machine.
func atLast(t *testing.T, f func(timeout time.Duration) bool) {
	for timeout := time.Second; !f(timeout); timeout *= 2 {
		require.Less(t, timeout, time.Minute)
	}
}

func TestPEsThatDoNotFitAreTold(t *testing.T) {
	t.Run("other number of PEs", func(t *testing.T) {
		errs := openAll(t, time.Minute, []Option{PE(0, 2, "j")}, []Option{PE(1, 3, "j")})
		require.ErrorContains(t, errs[0], "PE 0 of 2 here, PE 1 of 3 there")
		require.ErrorContains(t, errs[1], "PE 1 of 3 here, PE 0 of 2 there")
	})
	t.Run("other heap", func(t *testing.T) {
		errs := openAll(t, time.Minute, []Option{PE(0, 2, "j")}, []Option{PE(1, 2, "j"), HeapLimit(16 << 20)})
		require.ErrorContains(t, errs[0], "symmetric heap of 8388608 bytes here, 16777216 at PE 1")
		require.ErrorContains(t, errs[1], "symmetric heap of 16777216 bytes here, 8388608 at PE 0")
	})
	t.Run("one is missing", func(t *testing.T) {
		atLast(t, func(timeout time.Duration) bool {
			errs := openAll(t, timeout, []Option{PE(0, 3, "j")}, []Option{PE(1, 3, "j")})
			for _, err := range errs {
				require.ErrorContains(t, err, "missing")
			}
			return strings.Contains(errs[0].Error(), "PE 2 is missing") && strings.Contains(errs[1].Error(), "PE 2 is missing")
		})
	})
	t.Run("the same twice", func(t *testing.T) {
		atLast(t, func(timeout time.Duration) bool {
			errs := openAll(t, timeout, []Option{PE(0, 2, "j")}, []Option{PE(0, 2, "j")})
			return strings.Contains(fmt.Sprint(errs), "has a PE 0 in this fabric already")
		})
	})
}

func TestNothingIsLeftBehind(t *testing.T) {
	leak.Check(t)
	for _, opts := range modes {
		for _, kind := range []string{"mem", "shm"} {
			run(t, 3, kind+":"+fabrictest.Name(t), opts, func(w *World) { basics(t, w) })
		}
	}
}

// The heap takes memory as it is used.
func TestTheHeapTakesMemoryAsItIsUsed(t *testing.T) {
	w, err := Open(context.Background(), PE(0, 1, "x"), HeapLimit(64<<30))
	if err != nil {
		t.Skip("no address space for a heap of 64 GiB: ", err)
	}
	big, err := Alloc[byte](context.Background(), w, 40<<30)
	require.NoError(t, err)
	first := &big.Local()[0]
	more, err := Alloc[byte](context.Background(), w, 20<<30)
	require.NoError(t, err)
	require.Same(t, first, &big.Local()[0])
	more.Local()[more.Len()-1] = 1
	big.Local()[big.Len()/2] = 1
	_, err = Alloc[byte](context.Background(), w, 10<<30)
	require.ErrorIs(t, err, ErrHeapFull)
	require.NoError(t, Free(context.Background(), more))
	_, err = Alloc[byte](context.Background(), w, 10<<30)
	require.NoError(t, err)
	require.NoError(t, w.Close(context.Background()))
}

func TestASizeThatDiffersIsToldToAll(t *testing.T) {
	each(t, []int{2, 3}, func(t *testing.T, w *World) {
		size := 100
		if w.PE() == 1 {
			size = 101
		}
		_, err := Alloc[int16](context.Background(), w, size)
		require.ErrorIs(t, err, ErrMismatch)
		// The job goes on.
		s, err := Alloc[int16](context.Background(), w, 100)
		require.NoError(t, err)
		require.NoError(t, Free(context.Background(), s))
	})
}

func TestTheHeapIsTheSameOnAllPEs(t *testing.T) {
	each(t, []int{3}, func(t *testing.T, w *World) {
		var all []Sym[uint32]
		for i := range 60 {
			s, err := AllocAligned[uint32](context.Background(), w, 1<<(i%13), (i*i)%3000)
			require.NoError(t, err)
			require.Zero(t, s.Offset()%(1<<(i%13)))
			all = append(all, s)
			if i%3 == 2 {
				require.NoError(t, Free(context.Background(), all[i/2]))
				all[i/2] = Sym[uint32]{}
			}
			where, err := AllocZeroed[int64](context.Background(), w, 1)
			require.NoError(t, err)
			AtomicXor(w.Ctx(), where, 0, int64(s.Offset()), 0)
			require.NoError(t, w.Team().Barrier(context.Background()))
			if w.PE() == 0 {
				require.Equal(t, int64(s.Offset()), where.Local()[0]) // an odd number of elements
			}
			require.NoError(t, Free(context.Background(), where))
		}
		for _, s := range all {
			require.NoError(t, Free(context.Background(), s))
		}
		s, err := Alloc[uint32](context.Background(), w, 10)
		require.NoError(t, err)
		s.Local()[9] = 7
		s, err = Realloc(context.Background(), w, s, 1000)
		require.NoError(t, err)
		require.Equal(t, uint32(7), s.Local()[9])
		require.NoError(t, Free(context.Background(), s))
	})
}
