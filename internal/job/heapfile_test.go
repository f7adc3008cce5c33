//go:build linux

package job

import (
	"testing"

	"github.com/ntbnet/ntbnet/internal/symheap"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/require"
)

// A World announces the token that is in its heap.
func TestAWorldMarksItsHeap(t *testing.T) {
	run(t, 2, "shm:"+fabrictest.Name(t), Options{}, func(w *World) {
		token := w.hello().Token
		require.NotZero(t, token)
		require.Equal(t, token, symheap.Load8(w.heap.Base, symheap.TokenAt))
		mapped, err := w.Mapped(1 - w.PE())
		require.True(t, mapped, err)
		require.NotEqual(t, token, symheap.Load8(w.peers[1-w.PE()].Base(), symheap.TokenAt))
	})
}
