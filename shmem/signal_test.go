package shmem

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

func init() { bodies["signal"] = signalPEs }

// signalPEs passes a signal around, and completes what it has put to some PEs only.
func signalPEs(t require.TestingT, w *World) {
	ctx, c, n := context.Background(), w.Ctx(), w.NumPEs()
	sig, err := AllocZeroed[uint64](ctx, w, 1)
	require.NoError(t, err)
	data, err := AllocZeroed[int64](ctx, w, 1000)
	require.NoError(t, err)
	right, left := (w.PE()+1)%n, (w.PE()+n-1)%n
	SetSignal(c, sig, uint64(w.PE()+1), right)
	_, err = SignalWaitUntil(ctx, sig, Eq, uint64(left+1))
	require.NoError(t, err)
	require.NoError(t, w.Team().Barrier(ctx))
	for i := range 1000 {
		P(c, data, i, int64(i), right)
	}
	require.NoError(t, c.QuietPEs(right))
	AddSignal(w.Team().NewCtx(), sig, 100, right) // of another context, which does not order it behind the puts
	v, err := SignalWaitUntil(ctx, sig, Gt, 100)
	require.NoError(t, err)
	require.Equal(t, uint64(left+101), v)
	require.Equal(t, int64(999), data.Local()[999])
	require.NoError(t, c.QuietPEs())
	require.NoError(t, c.QuietPEs(right, left, right))
	require.Panics(t, func() { _ = c.QuietPEs(n) })
	require.NoError(t, w.Team().Barrier(ctx))
}

func TestSignalsAndQuietOfSomePEs(t *testing.T) {
	each(t, []int{1, 2, 4}, func(t *testing.T, w *World) { signalPEs(t, w) })
	for mode := range modes {
		t.Run(mode, func(t *testing.T) { processes(t, "signal", 3, mode, nil) })
	}
	t.Run("ring", func(t *testing.T) { processes(t, "signal", 5, "mapped", ringOf(5)) })
}
