//go:build linux && (amd64 || arm64)

package integration

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// sharedMemory returns how much shared memory a process has, in KiB.
func sharedMemory(t *testing.T, pid int) (n int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	_, rest, ok := strings.Cut(string(text), "RssShmem:")
	require.True(t, ok)
	_, err = fmt.Sscan(rest, &n)
	require.NoError(t, err)
	return n
}

// Two processes that have had many connections, each with much data, have no more memory after a while than after the
// first one.
func TestWarmMemoryGoesBack(t *testing.T) {
	if !longRun() {
		t.Skip("waits for ten seconds; " + longVariable + " runs it")
	}
	newFabric(t)
	server := startPeer(t, "dumper", []string{t.TempDir()})
	address := server.readLine()
	exchange := func(size int) {
		t.Helper()
		c, err := sdp.Dial("sdp", address)
		require.NoError(t, err)
		go c.Write(make([]byte, size))
		_, err = io.ReadFull(c, make([]byte, size))
		require.NoError(t, err)
		require.NoError(t, c.Close())
	}
	stays, err := sdp.Dial("sdp", address) // else the link would end too
	require.NoError(t, err)
	defer stays.Close()
	exchange(10)
	here, there := sharedMemory(t, os.Getpid()), sharedMemory(t, server.cmd.Process.Pid)
	for range 50 {
		exchange(4 << 20)
	}
	require.Greater(t, sharedMemory(t, server.cmd.Process.Pid), there+256, "some is kept for the next connection")
	t.Logf("%d and %d KiB, and then %d and %d KiB", here, there, sharedMemory(t, os.Getpid()), sharedMemory(t, server.cmd.Process.Pid))
	until(t, "the memory goes back", func() bool {
		return sharedMemory(t, os.Getpid()) <= here+256 && sharedMemory(t, server.cmd.Process.Pid) <= there+256
	})
}
