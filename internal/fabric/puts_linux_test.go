//go:build amd64 || arm64

package fabric

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/heapmem"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// heapOf maps the part of a HeapWindow that is this side's.
func heapOf(t *testing.T, w *heapmem.Window) []byte {
	t.Helper()
	heap, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Munmap(heap) })
	require.NoError(t, w.Map(heap))
	return heap
}

// The memory of a node's heap is one heap's at a time, and no other's than those of all its neighbours' sessions of that
// time.
func TestAHeapHasItsMemoryForItself(t *testing.T) {
	leak.Check(t)
	const nodes = 3
	file := filepath.Join(t.TempDir(), "memory")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, 12<<20))
	name := fmt.Sprintf("heaps-%d-%08x", os.Getpid(), rand.Uint32())
	t.Cleanup(func() { require.NoError(t, spec.Remove(name)) })
	var specs [nodes + 1]*spec.Spec
	var fabrics [nodes + 1]*Fabric
	open := func(node int) {
		text := fmt.Sprintf("mesh:%s?node=%d&nodes=%d&puts=window&heap=1048576", name, node, nodes)
		for other := 1; other <= nodes; other++ {
			if other != node {
				text += fmt.Sprintf("&node%d=file:%s,peers=%d", other, file, nodes)
			}
		}
		var err error
		specs[node], err = spec.Parse(text)
		require.NoError(t, err)
		fabrics[node], err = Open(specs[node], func(*Fabric) {})
		require.NoError(t, err)
		t.Cleanup(fabrics[node].Close)
	}
	window := func(node int) *heapmem.Window {
		w, err := OpenHeapWindow(t.Context(), specs[node])
		require.NoError(t, err)
		if w != nil {
			t.Cleanup(func() { w.Close() })
		}
		return w
	}
	for node := 1; node <= nodes; node++ {
		open(node)
	}
	first := window(1)
	two, three := window(2), window(3)
	heap := heapOf(t, first)
	require.Zero(t, ntb.Load64(heap, 8192))
	require.Equal(t, first.To(2).Own, two.To(1).Far)
	require.Equal(t, first.To(2).Far, two.To(1).Own)
	two.To(1).Out.Publish64(8192, 2)
	require.Equal(t, uint64(2), ntb.Load64(heap, 8192))
	three.To(1).Out.Publish64(8200, 3)
	require.Equal(t, uint64(3), ntb.Load64(heap, 8200))
	var got [8]byte
	require.True(t, two.To(1).Load(got[:], 8200))
	require.Equal(t, byte(3), got[0])

	require.Nil(t, window(1), "the sessions' memory is taken")
	require.NoError(t, first.Close())
	require.Nil(t, window(1), "a neighbour may store what the first heap was sent")

	v, _ := windowed.Load(keyOf(specs[1]))
	h := v.(*hosts)
	again := func(node int) { // a process ends, and another one comes
		h.mu.Lock()
		l := h.links[node-2]
		ups := l.ups
		h.mu.Unlock()
		fabrics[node].Close()
		open(node)
		require.Eventually(t, func() bool {
			h.mu.Lock()
			defer h.mu.Unlock()
			return l.ups > ups && l.up()
		}, time.Minute, time.Millisecond)
	}
	again(2)
	require.Nil(t, window(1), "node 3 may")
	again(3)
	next := window(1)
	require.NotNil(t, next)
	heap[8192] = 77
	heap = heapOf(t, next)
	require.Zero(t, ntb.Load64(heap, 8192))
	two.To(1).Out.Publish64(8192, 2) // of the session before
	three.To(1).Out.Publish64(8192, 3)
	require.Zero(t, ntb.Load64(heap, 8192))
	require.False(t, two.To(1).Load(got[:], 8192))

	again(2)
	again(3)
	require.Nil(t, window(1), "its own heap is still in use")
	require.NoError(t, next.Close())
	require.NotNil(t, window(1))
}
