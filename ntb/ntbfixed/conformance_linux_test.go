//go:build linux && (amd64 || arm64)

package ntbfixed

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/ntbtest"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

func pair(t *testing.T, size int) (a, b ntb.Attachment) {
	a, b, err := newPair(size)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, a.Close())
		require.NoError(t, b.Close())
	})
	return a, b
}

// open opens a session on both sides.
func open(t *testing.T, a, b ntb.Attachment) (x, y ntb.Device) {
	return openBy(t, a.Open, b.Open)
}

func openBy(t *testing.T, a, b func(context.Context) (ntb.Device, error)) (x, y ntb.Device) {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		var err error
		y, err = b(ctx)
		done <- err
	}()
	x, err := a(ctx)
	require.NoError(t, err)
	require.NoError(t, <-done)
	return x, y
}

func TestConformance(t *testing.T) {
	ntbtest.Run(t, func(t *testing.T) (ntb.Device, ntb.Device) {
		a, b := pair(t, 64<<10)
		return open(t, a, b)
	})
}

func TestSessions(t *testing.T) {
	ntbtest.RunAttachments(t, func(t *testing.T) (a, b ntb.Attachment) { return pair(t, 4<<10) })
	maps, err := os.ReadFile("/proc/self/maps")
	require.NoError(t, err)
	require.Zero(t, strings.Count(string(maps), "ntbnet-fixed"), "mappings left")
}
