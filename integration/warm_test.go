//go:build linux && (amd64 || arm64)

package integration

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ntbnet/ntbnet/internal/status"
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

// What a process has sent and received stays in warm memory for its own next connections. Neither another process finds it,
// whatever it reads of what it shares, nor one that comes when that one has ended.
func TestWarmMemoryShowsNobodyAnothersBytes(t *testing.T) {
	name := newFabric(t)
	t.Setenv("SDP_FABRIC", "shm:"+name+"?window=8388608") // all of it is read
	server := startPeer(t, "dumper", []string{t.TempDir()})
	address := server.readLine()
	plant := func(who string) *peer {
		p := startPeer(t, "planter", []string{address, who + "-bytes."})
		require.Equal(t, "ready", p.readLine())
		return p
	}
	finds := func(p *peer, whose string) (n int) {
		p.askFor(whose+"-bytes.", &n)
		return n
	}
	warm := func() bool { // as status has it
		ls := start(t, filepath.Join(programs, "ntbnet"), []string{"ls", "--json", "--fabric", "shm:" + name})
		require.Zero(t, ls.status(), ls.out.String())
		var r struct{ Fabrics []status.Directory }
		require.NoError(t, json.Unmarshal([]byte(ls.out.String()), &r))
		some := false
		for _, p := range r.Fabrics[0].Processes {
			require.LessOrEqual(t, p.Warm, p.WarmRoom)
			some = some || p.PID == server.cmd.Process.Pid && p.Warm > 0
		}
		return some
	}
	first, second := plant("first"), plant("second")
	until(t, "there is warm memory", func() bool { return finds(first, "first") > 0 && warm() })
	require.Zero(t, finds(first, "second"))
	require.Zero(t, finds(second, "first"))
	first.end()
	third := plant("third")
	until(t, "there is warm memory", func() bool { return finds(third, "third") > 0 })
	require.Zero(t, finds(third, "first"))
	require.Zero(t, finds(third, "second"))
	third.end()
	second.end()
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
