package shmem

import (
	"context"
	"github.com/ntbnet/ntbnet/internal/symheap"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
)

func init() { bodies["methods"] = methods }

// methods tries the methods of Sym. Each PE puts to the one two further, which is not a
// neighbour in a ring of four.
func methods(t require.TestingT, w *World) {
	const n = 9000
	ctx := context.Background()
	to, from := (w.PE()+2)%w.NumPEs(), (w.PE()+2*w.NumPEs()-2)%w.NumPEs()
	s, err := AllocZeroed[int32](ctx, w, n)
	require.NoError(t, err)
	barrier := func() { require.NoError(t, w.Team().Barrier(ctx)) }
	mine, theirs := numbers[int32](n, 7*w.PE()+1), numbers[int32](n, 7*from+1)

	s.Put(mine, to)
	barrier()
	require.Equal(t, theirs, s.Local())
	got := make([]int32, n)
	s.Get(got, to)
	require.Equal(t, mine, got)
	clear(got)
	s.From(5).GetNBI(got[5:], to)
	require.NoError(t, w.Ctx().Quiet())
	require.Equal(t, mine[5:], got[5:])
	require.Equal(t, mine[8], s.G(8, to))
	barrier()

	s.From(10).PutNBI([]int32{1, 2, 3}, to)
	s.P(13, 4, to)
	require.NoError(t, w.Ctx().Quiet())
	v, err := s.TryG(13, to)
	require.NoError(t, err)
	require.Equal(t, int32(4), v)
	barrier()
	require.Equal(t, []int32{1, 2, 3, 4}, s.Local()[10:14])
	barrier()
}

func TestMethodsUseTheDefaultContext(t *testing.T) {
	each(t, []int{1, 2, 3}, func(t *testing.T, w *World) { methods(t, w) })
	for mode := range modes {
		t.Run("processes/"+mode, func(t *testing.T) { processes(t, "methods", 2, mode, nil) })
	}
	t.Run("ring", func(t *testing.T) { processes(t, "methods", 4, "mapped", ringOf(4)) })
}

func TestMethodsOfAZeroSymPanic(t *testing.T) {
	const message = "shmem: use of a closed World, or of a zero Sym"
	var s Sym[int64]
	for name, f := range map[string]func(){
		"Put":    func() { s.Put(nil, 0) },
		"Get":    func() { s.Get(nil, 0) },
		"PutNBI": func() { s.PutNBI(nil, 0) },
		"GetNBI": func() { s.GetNBI(nil, 0) },
		"P":      func() { s.P(0, 1, 0) },
		"G":      func() { s.G(0, 0) },
		"TryG":   func() { _, _ = s.TryG(0, 0) },
	} {
		require.PanicsWithValue(t, message, f, name)
	}
}

// A call that manages memory waits for all PEs. Its ctx ends the wait, and with it the
// team of all PEs.
func TestACtxEndsCallsThatManageMemory(t *testing.T) {
	leak.Check(t)
	calls := map[string]func(ctx context.Context, w *World, s Sym[int32]) error{
		"Alloc": func(ctx context.Context, w *World, _ Sym[int32]) error { _, err := Alloc[int32](ctx, w, 1); return err },
		"AllocZeroed": func(ctx context.Context, w *World, _ Sym[int32]) error {
			_, err := AllocZeroed[int32](ctx, w, 1)
			return err
		},
		"AllocAligned": func(ctx context.Context, w *World, _ Sym[int32]) error {
			_, err := AllocAligned[int32](ctx, w, 128, 1)
			return err
		},
		"AllocHints": func(ctx context.Context, w *World, _ Sym[int32]) error {
			_, err := AllocHints[int32](ctx, w, 1, 0)
			return err
		},
		"Realloc": func(ctx context.Context, w *World, s Sym[int32]) error { _, err := Realloc(ctx, w, s, 9); return err },
		"Free":    func(ctx context.Context, _ *World, s Sym[int32]) error { return Free(ctx, s) },
		"NewLock": func(ctx context.Context, w *World, _ Sym[int32]) error { _, err := NewLock(ctx, w); return err },
		"Close":   func(ctx context.Context, w *World, _ Sym[int32]) error { return w.Close(ctx) },
	}
	for name, call := range calls {
		for mode, opts := range modes {
			t.Run(name+"/"+mode, func(t *testing.T) {
				openEach(t, 2, "mem:endctx", opts, func(w *World) {
					s, err := Alloc[int32](context.Background(), w, 4)
					require.NoError(t, err)
					if w.PE() == 0 { // it calls nothing more, and learns of the other PE's end
						word := symOf[uint64](w, symheap.Shared, 1)
						ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
						defer cancel()
						var dead *DeadError
						require.ErrorAs(t, WaitUntil(ctx, word, 0, Eq, 1<<63), &dead)
						require.Equal(t, 1, dead.PE)
						require.Error(t, w.Close(ctx))
						return
					}
					ctx, cancel := context.WithCancel(context.Background())
					time.AfterFunc(time.Millisecond, cancel)
					require.ErrorIs(t, call(ctx, w, s), context.Canceled)
					if name == "Close" {
						require.ErrorIs(t, w.Close(context.Background()), ErrClosed)
						return
					}
					require.ErrorIs(t, w.Team().Sync(context.Background()), context.Canceled)
					require.ErrorIs(t, w.Close(context.Background()), context.Canceled)
				})
			})
		}
	}
}
