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

// windowed opens a PE on each of two nodes, which put by window, within this process.
func windowed(t *testing.T) (all [2]*World) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "memory")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, 8<<20))
	var opens sync.WaitGroup
	for pe, side := range []string{"right", "left"} {
		o := Options{Given: true, PE: pe, N: 2, Job: t.Name(),
			Fabric: fmt.Sprintf("line:%s?node=%d&nodes=2&puts=window&heap=2097152&%s=file:%s", fabrictest.Name(t), pe+1, side, file)}
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
	leak.Check(t)
	all := windowed(t)
	w := all[0]
	good := *all[1].hello()
	used := func(h *hello) bool {
		p := &peer{Peer: onesided.New(0, 2, w.heap, false, nil, nil).Peers()[1]}
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
		"its own number":  {func(h *hello) { h.Window = w.window.Own }, false},
		"another node":    {func(h *hello) { h.Node = 17 }, false},
	} {
		h := good
		tt.change(&h)
		require.Equal(t, tt.used, used(&h), name)
	}
	all[1].fabric.Close()
	require.Eventually(t, func() bool { return !used(&good) }, time.Minute, time.Millisecond, "a session that has ended")
	for _, w := range all {
		require.Error(t, w.Close(context.Background()))
	}
}
