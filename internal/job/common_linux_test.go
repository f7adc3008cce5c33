package job

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ntbnet/ntbnet/internal/heapmem"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/symheap"
	"github.com/stretchr/testify/require"
)

// commonOf returns the options of a PE of two, whose heap is in memory that is common to two nodes.
func commonOf(t *testing.T, file string, pe int) options {
	t.Helper()
	spec, err := spec.Parse(fmt.Sprintf("line:x?node=%d&nodes=2&heap=%d&%s=file:%s", pe+1, 16<<20, []string{"right", "left"}[pe], file))
	require.NoError(t, err)
	o := options{Options: Options{PE: pe, N: 2}}
	o.common, err = heapmem.OpenCommon(t.Context(), spec)
	require.NoError(t, err)
	require.NoError(t, o.fit(spec, true))
	return o
}

// What a PE says of its heap is checked before it is mapped.
func TestHeapsOutsideOfTheirPartAreNotMapped(t *testing.T) {
	file := filepath.Join(t.TempDir(), "memory")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, 64<<20))
	var all [2]*World
	for pe := range all {
		o := commonOf(t, file, pe)
		w, err := newWorld(t.Context(), o)
		require.NoError(t, err)
		defer w.release()
		w.spec, err = spec.Parse("line:x?node=1&nodes=2")
		require.NoError(t, err)
		all[pe] = w
	}
	good := *all[1].hello()
	good.Node = 2
	p := all[0].peers[1]
	require.NoError(t, all[0].mapPeer(t.Context(), p, &good))
	all[1].heap.Bytes[8000] = 7
	require.Equal(t, byte(7), p.mem.Bytes[8000])
	for name, tt := range map[string]struct {
		change func(h *hello)
		want   string
	}{
		"no node":      {func(h *hello) { h.Node = 0 }, "node 0 of 2"},
		"node":         {func(h *hello) { h.Node = 3 }, "node 3 of 2"},
		"another node": {func(h *hello) { h.Node = 1 }, "not in the memory for heaps of node 1"},
		"below":        {func(h *hello) { h.At -= symheap.PageBytes }, "not in the memory"},
		"above":        {func(h *hello) { h.At += symheap.PageBytes }, "not in the memory"},
		"negative":     {func(h *hello) { h.At = -1 << 63 }, "not in the memory"},
		"odd":          {func(h *hello) { h.At++ }, "not in the memory"},
		"token":        {func(h *hello) { h.Token++ }, "another heap"},
	} {
		h := good
		tt.change(&h)
		require.ErrorContains(t, all[0].mapPeer(t.Context(), p, &h), tt.want, name)
	}
	mine := all[0].hello()
	good.Common++
	require.ErrorIs(t, all[0].fits(&good), errRefused)
	require.ErrorContains(t, all[0].fits(&good), fmt.Sprintf("option heap=%d of the fabric here, heap=%d at PE 1", mine.Common, good.Common))
}
