package symheap

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	partAt   = 1 << 20
	partSize = 1 << 20
)

// opener makes a file with room for n heaps from partAt on, and returns what opens it.
func opener(t *testing.T, n int) (open func() *os.File) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "memory")
	ones := make([]byte, partAt+n*partSize)
	for i := range ones {
		ones[i] = 1
	}
	require.NoError(t, os.WriteFile(name, ones, 0o600))
	return func() *os.File {
		f, err := os.OpenFile(name, os.O_RDWR, 0)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
}

// full returns what NewIn says where there is no part.
func full(t *testing.T, f *os.File, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err := NewIn(ctx, f, partAt, n*partSize, partSize, 1)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "are in use")
}

func TestHeapsOfAFile(t *testing.T) {
	open := opener(t, 2)
	var heaps []*Memory
	for i := range 2 {
		m, err := NewIn(t.Context(), open(), partAt, 2*partSize, partSize, uint64(7+i))
		require.NoError(t, err)
		_, at := m.File()
		require.Equal(t, int64(partAt+i*partSize), at)
		for i, b := range m.Bytes[ArmAt:TokenAt] {
			require.Zero(t, b, i)
		}
		for i, b := range m.Bytes[TokenAt+8:] {
			require.Zero(t, b, i)
		}
		heaps = append(heaps, m)
	}
	full(t, open(), 2)

	peer := open()
	there, err := MapIn(peer, partAt, partSize, 7)
	require.NoError(t, err)
	there.Bytes[5000] = 3
	require.Equal(t, byte(3), heaps[0].Bytes[5000])

	// The owner ends. The other process may still store.
	heaps[0].Close()
	full(t, open(), 1)
	there.Close()
	require.NoError(t, peer.Close())
	m, err := NewIn(t.Context(), open(), partAt, partSize, partSize, 9)
	require.NoError(t, err)
	require.Zero(t, m.Bytes[5000])
	m.Close()
	heaps[1].Close()
}

// A heap that ends while another process waits for its part makes room.
func TestAPartIsWaitedFor(t *testing.T) {
	open := opener(t, 1)
	m, err := NewIn(t.Context(), open(), partAt, partSize, partSize, 7)
	require.NoError(t, err)
	next := make(chan error)
	other := open()
	go func() {
		m, err := NewIn(t.Context(), other, partAt, partSize, partSize, 8)
		if err == nil {
			m.Close()
		}
		next <- err
	}()
	m.Close()
	require.NoError(t, <-next)
}

// What is not the heap that is meant is not mapped, and keeps nobody out.
func TestOtherHeapsOfAFile(t *testing.T) {
	open := opener(t, 2)
	peer := open()
	m, err := NewIn(t.Context(), open(), partAt, partSize, partSize, 7)
	require.NoError(t, err)
	for name, tt := range map[string]struct {
		at    int64
		token uint64
	}{
		"token":    {partAt, 8},
		"none":     {partAt, 0},
		"place":    {partAt + 4096, 7},
		"no heap":  {partAt + partSize, 7},
		"past end": {partAt + 2*partSize, 7},
	} {
		_, err := MapIn(peer, tt.at, partSize, tt.token)
		require.ErrorContains(t, err, "another heap", name)
	}
	m.Close()
	m, err = NewIn(t.Context(), open(), partAt, 2*partSize, 2*partSize, 9)
	require.NoError(t, err)
	m.Close()
}
