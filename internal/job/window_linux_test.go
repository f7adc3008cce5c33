//go:build amd64 || arm64

package job

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/onesided"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
)

// windowed opens a PE on each of n nodes, which put by window, within this process.
func windowed(t *testing.T, n int) []*World {
	t.Helper()
	file := filepath.Join(t.TempDir(), "memory")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, int64(n*(n-1)*4<<20)))
	all := make([]*World, n)
	var opens sync.WaitGroup
	for pe := range all {
		o := Options{Given: true, PE: pe, N: n, Job: t.Name(),
			Fabric: fmt.Sprintf("mesh:%s?node=%d&nodes=%d&puts=window&heap=2097152", fabrictest.Name(t), pe+1, n)}
		for other := range n {
			if other != pe {
				o.Fabric += fmt.Sprintf("&node%d=file:%s,peers=%d", other+1, file, n)
			}
		}
		opens.Go(func() {
			var err error
			if all[pe], err = Open(context.Background(), o); err != nil {
				t.Error(err)
			}
		})
	}
	opens.Wait()
	require.False(t, t.Failed())
	return all
}

// A neighbour's part of a window is used only for the heap that the PE there has in the same session.
func TestOtherHeapsInWindowsAreNotUsed(t *testing.T) {
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			leak.Check(t)
			all := windowed(t, n)
			w, last := all[0], n-1
			good := *all[last].hello(w.spec.Node)
			used := func(h *hello) bool {
				p := &peer{Peer: onesided.New(0, n, w.heap, false, nil, nil).Peers()[last]}
				require.Equal(t, errWindow, w.mapPeer(t.Context(), p, h))
				return !reflect.ValueOf(p.Peer).Elem().FieldByName("win").IsNil()
			}
			require.NotZero(t, good.Window)
			require.NotEqual(t, good.Window, good.Token)
			for name, tt := range map[string]struct {
				change func(h *hello)
				used   bool
			}{
				"the same":        {func(*hello) {}, true},
				"another session": {func(h *hello) { h.Window++ }, false},
				"its own number":  {func(h *hello) { h.Window = w.windowTo(h.Node).Own }, false},
				"another node":    {func(h *hello) { h.Node = 17 }, false},
			} {
				h := good
				tt.change(&h)
				require.Equal(t, tt.used, used(&h), name)
			}
			other := good
			other.Token++
			require.NoError(t, w.fits(&good))
			require.ErrorContains(t, w.fits(&other), "has another heap in the memory of its window")
			all[last].fabric.Close()
			require.Eventually(t, func() bool { return !used(&good) }, time.Minute, time.Millisecond, "a session that has ended")
			for _, w := range all {
				require.Error(t, w.Close(context.Background()))
			}
		})
	}
}
