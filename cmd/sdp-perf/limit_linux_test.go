package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
)

// lowestFree returns the lowest number that no descriptor of a process has.
func lowestFree(t *testing.T, pid int) uint64 {
	t.Helper()
	for fd := uint64(0); ; fd++ {
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d/fd/%d", pid, fd)); errors.Is(err, os.ErrNotExist) {
			return fd
		} else if err != nil {
			t.Skip("WARNING: /proc has no descriptors: ", err)
		}
	}
}

// addressSpace returns the bytes of a process's mappings.
func addressSpace(t *testing.T, pid int) uint64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Skip("WARNING: /proc has no sizes: ", err)
	}
	pages, err := strconv.ParseUint(strings.Fields(string(text))[0], 10, 64)
	require.NoError(t, err)
	return pages * uint64(os.Getpagesize())
}

func assertOneWarning(t *testing.T, text, says string) {
	t.Helper()
	assert.Equal(t, 1, strings.Count(text, "\n"), "%q", text)
	assert.Contains(t, text, "WARN fabric: this process cannot make its half of a link")
	assert.Contains(t, text, says)
}

// A server that cannot make its half of a link says why, once, and its client says so too.
func TestWhoHasNoHalfOfALinkSaysWhy(t *testing.T) {
	for name, c := range map[string]struct {
		resource int
		limit    func(pid int) uint64
		says     error
	}{
		"file size":              {unix.RLIMIT_FSIZE, func(int) uint64 { return 1 << 20 }, syscall.EFBIG},
		"address space":          {unix.RLIMIT_AS, func(pid int) uint64 { return addressSpace(t, pid) + 3<<29 }, syscall.ENOMEM},
		"files, of the peer":     {unix.RLIMIT_NOFILE, func(pid int) uint64 { return lowestFree(t, pid) + 1 }, syscall.EMFILE},
		"files, of the memory":   {unix.RLIMIT_NOFILE, func(pid int) uint64 { return lowestFree(t, pid) + 2 }, syscall.EMFILE},
		"files, of the doorbell": {unix.RLIMIT_NOFILE, func(pid int) uint64 { return lowestFree(t, pid) + 3 }, syscall.EMFILE},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SDP_FABRIC", "shm:"+fabrictest.Name(t))
			srv, port := startServer(t, "--transport", "sdp")
			limit := c.limit(srv.Process.Pid)
			require.NoError(t, unix.Prlimit(srv.Process.Pid, c.resource, &unix.Rlimit{Cur: limit, Max: limit}, nil))
			client := newProgram(t, nil, "lat", "-c", "localhost", "-p", port, "-k", "10")
			assert.NotZero(t, client.run(t))
			assertOneLine(t, client.stderr.String(), c.says.Error())
			require.NoError(t, srv.Process.Signal(os.Interrupt))
			assert.Zero(t, srv.wait(t))
			assertOneWarning(t, srv.stderr.String(), c.says.Error())
		})
	}
}

// The same over a wire, which is tried again, and logged once.
func TestWhoHasNoHalfOfAWireSaysWhy(t *testing.T) {
	name := fabrictest.Name(t)
	spec := func(node int) string { return fmt.Sprintf("line:%s?nodes=2&node=%d", name, node) }
	t.Setenv("SDP_FABRIC", spec(1))
	srv, port := startServer(t, "--transport", "sdp")
	require.NoError(t, unix.Prlimit(srv.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}, nil))
	f, err := sdp.Open(spec(2))
	require.NoError(t, err)
	defer f.Close()
	for told, tries := "", 0; !strings.Contains(told, syscall.EFBIG.Error()) || tries < 2; tries++ {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := (&sdp.Dialer{Fabric: f}).DialContext(ctx, "sdp", "node1:"+port)
		cancel()
		require.Error(t, err)
		require.Less(t, tries, 300, told)
		told = err.Error()
	}
	f.Close()
	require.NoError(t, srv.Process.Signal(os.Interrupt))
	assert.Zero(t, srv.wait(t))
	assertOneWarning(t, srv.stderr.String(), syscall.EFBIG.Error())
}
