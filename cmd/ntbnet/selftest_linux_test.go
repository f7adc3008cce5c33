//go:build amd64 || arm64

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ntbnet/ntbnet/internal/selftest"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb/ntbfixed"
	"github.com/stretchr/testify/require"
)

// start starts a selftest, whose lines the test reads while it runs.
func start(t *testing.T, args ...string) (p *program, table *bufio.Reader) {
	t.Helper()
	p = newProgram(nil, append([]string{"selftest"}, args...)...)
	r, w, err := os.Pipe()
	require.NoError(t, err)
	p.Stdout = io.MultiWriter(&p.stdout, w)
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait(); r.Close(); w.Close() })
	return p, bufio.NewReader(r)
}

// status waits for the program's end, and returns its exit status.
func (p *program) status() int {
	_ = p.Wait()
	return p.ProcessState.ExitCode()
}

// memory returns the end that two processes have in common.
func memory(t *testing.T) (file, end string) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "memory")
	require.NoError(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	return file, "file:" + file
}

func TestTwoProcessesTestAWire(t *testing.T) {
	file, end := memory(t)
	report := filepath.Join(t.TempDir(), "report.json")
	t.Setenv(spec.EnvFabric, "line:x?node=1&nodes=2&right="+end)
	one, _ := start(t, "--time", "50ms", "--late", "1m", "--json", report)
	two, _ := start(t, "--time", "50ms", "--late", "1m", "--json", "-", "--node", "2", end)
	require.Equal(t, statusOK, one.status(), "%s%s", &one.stdout, &one.stderr)
	require.Equal(t, statusOK, two.status(), "%s%s", &two.stdout, &two.stderr)
	require.Empty(t, one.stderr.String())
	require.Contains(t, one.stdout.String(), "pass  other side        found no fault\n")
	for line := range strings.Lines(one.stdout.String()) {
		require.LessOrEqual(t, len([]rune(line)), 81, line)
	}
	for _, text := range [][]byte{read(t, report), two.stdout.Bytes()} {
		var r selftest.Report
		require.NoError(t, json.Unmarshal(text, &r))
		require.True(t, r.Pass)
		require.Equal(t, "file", r.Backend)
		require.Greater(t, len(r.Checks), 10)
	}
	mem := read(t, file)
	for half := range 2 { // each has a header page, the test's own words, and the payload
		payload := mem[half*len(mem)/2+ntbfixed.PageSize+512 : (half+1)*len(mem)/2]
		require.Empty(t, bytes.Trim(payload, "\x00"), "what is left in the window")
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	return text
}

func TestAWireInUseAndAPeerThatIsKilled(t *testing.T) {
	_, end := memory(t)
	one, table := start(t, "--time", "1h", "--node", "1", end)
	two, _ := start(t, "--time", "1h", "--node", "2", end)
	line, err := table.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "pass  wire              file, cacheable memory, a window of 508 KiB\n", line)
	third, _ := start(t, "--node", "1", end)
	require.Equal(t, statusUsage, third.status())
	require.Contains(t, third.stderr.String(), "another process uses this end of the bridge")
	require.NoError(t, two.Process.Kill())
	require.Equal(t, statusFailed, one.status())
	require.Contains(t, one.stderr.String(), "order: the link was lost: the other side has ended or was killed, or the cable is cut\n")

	require.Equal(t, 1, strings.Count(one.stderr.String(), "\n"), &one.stderr)

	one, table = start(t, "--time", "1h", "--node", "1", end)
	two, _ = start(t, "--time", "1h", "--node", "2", end)
	_, err = table.ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, one.Process.Signal(os.Interrupt))
	require.Equal(t, statusFailed, one.status())
	require.Contains(t, one.stderr.String(), ": stopped by a signal\n")
	require.Equal(t, statusFailed, two.status())
	require.Contains(t, two.stderr.String(), "the link was lost")

	alone, _ := start(t, "--wait", "10ms", "--node", "1", end)
	require.Equal(t, statusFailed, alone.status())
	require.Contains(t, alone.stderr.String(), "the other side has not come within 10ms, run ntbnet selftest there too")
	require.Equal(t, 1, strings.Count(alone.stderr.String(), "\n"))
}
