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

// heapOf maps the part of a Window that is this side's.
func heapOf(t *testing.T, w *heapmem.Window) []byte {
	t.Helper()
	heap, err := unix.Mmap(-1, 0, 1<<20, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Munmap(heap) })
	require.NoError(t, w.Map(heap))
	return heap
}

// The memory of a session is one heap's. It begins with zeros, and what a session before still stores reaches nobody.
func TestAHeapHasItsMemoryForItself(t *testing.T) {
	leak.Check(t)
	file := filepath.Join(t.TempDir(), "memory")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, 8<<20))
	name := fmt.Sprintf("heaps-%d-%08x", os.Getpid(), rand.Uint32())
	t.Cleanup(func() { require.NoError(t, spec.Remove(name)) })
	var specs [3]*spec.Spec
	var fabrics [3]*Fabric
	open := func(node int) {
		text := fmt.Sprintf("line:%s?node=%d&nodes=2&puts=window&heap=1048576&%s=file:%s", name, node, []string{1: "right", 2: "left"}[node], file)
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
	open(1)
	open(2)
	one, two := window(1), window(2)
	heap := heapOf(t, one)
	require.Zero(t, ntb.Load64(heap, 8192))
	require.Equal(t, one.Own, two.Far)
	require.Equal(t, one.Far, two.Own)
	two.Out.Publish64(8192, 2)
	require.Equal(t, uint64(2), ntb.Load64(heap, 8192))

	require.Nil(t, window(1), "the session's memory is taken")
	require.NoError(t, one.Close())
	require.Nil(t, window(1), "the neighbour may store what the first heap was sent")

	v, _ := windowed.Load(windowKey(specs[1]))
	h := v.(*Fabric)
	h.mu.Lock()
	l := h.links[0]
	ups := l.ups
	h.mu.Unlock()
	fabrics[2].Close() // a process ends, and another one comes
	open(2)
	require.Eventually(t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		return l.ups > ups && l.up()
	}, time.Minute, time.Millisecond)
	next := window(1)
	require.NotNil(t, next)
	heap = heapOf(t, next)
	require.Zero(t, ntb.Load64(heap, 8192))
	two.Out.Publish64(8192, 2) // of the session before
	require.Zero(t, ntb.Load64(heap, 8192))
}
