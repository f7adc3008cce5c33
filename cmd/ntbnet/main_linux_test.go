//go:build amd64 || arm64

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/selftest"
	"github.com/ntbnet/ntbnet/ntb/ntbfixed"
	"github.com/stretchr/testify/require"
)

// asProgram has the test binary run the program.
const asProgram = "NTBNET_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// program is a process of the program.
type program struct {
	*exec.Cmd
	table     *os.File // for a test that reads while the program runs
	out, errs bytes.Buffer
}

func start(t *testing.T, args ...string) *program {
	t.Helper()
	p := &program{Cmd: exec.Command(os.Args[0], append([]string{"selftest"}, args...)...)}
	p.Env = append(os.Environ(), asProgram+"=1")
	r, w, err := os.Pipe()
	require.NoError(t, err)
	p.table = r
	p.Stdout, p.Stderr = io.MultiWriter(&p.out, w), &p.errs
	require.NoError(t, p.Start())
	t.Cleanup(func() { _ = p.Process.Kill(); _ = p.Wait(); r.Close(); w.Close() })
	return p
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
	t.Setenv(fabric.EnvFabric, "line:x?node=1&nodes=2&right="+end)
	one := start(t, "--time", "50ms", "--late", "1m", "--json", report)
	two := start(t, "--time", "50ms", "--late", "1m", "--json", "-", "--node", "2", end)
	require.Equal(t, statusOK, one.status(), "%s%s", &one.out, &one.errs)
	require.Equal(t, statusOK, two.status(), "%s%s", &two.out, &two.errs)
	require.Empty(t, one.errs.String())
	require.Contains(t, one.out.String(), "pass  other side        found no fault\n")
	for line := range strings.Lines(one.out.String()) {
		require.LessOrEqual(t, len([]rune(line)), 81, line)
	}
	for _, text := range [][]byte{read(t, report), two.out.Bytes()} {
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
	one := start(t, "--time", "1h", "--node", "1", end)
	two := start(t, "--time", "1h", "--node", "2", end)
	line, err := bufio.NewReader(one.table).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "pass  wire              file, cacheable memory, a window of 508 KiB\n", line)
	third := start(t, "--node", "1", end)
	require.Equal(t, statusUsage, third.status())
	require.Contains(t, third.errs.String(), "another process uses this end of the bridge")
	require.NoError(t, two.Process.Kill())
	require.Equal(t, statusFailed, one.status())
	require.Contains(t, one.errs.String(), "order: the link was lost: the other side has ended or was killed, or the cable is cut\n")

	require.Equal(t, 1, strings.Count(one.errs.String(), "\n"), &one.errs)

	one = start(t, "--time", "1h", "--node", "1", end)
	two = start(t, "--time", "1h", "--node", "2", end)
	_, err = bufio.NewReader(one.table).ReadString('\n')
	require.NoError(t, err)
	require.NoError(t, one.Process.Signal(os.Interrupt))
	require.Equal(t, statusFailed, one.status())
	require.Contains(t, one.errs.String(), ": stopped by a signal\n")
	require.Equal(t, statusFailed, two.status())
	require.Contains(t, two.errs.String(), "the link was lost")

	alone := start(t, "--wait", "10ms", "--node", "1", end)
	require.Equal(t, statusFailed, alone.status())
	require.Contains(t, alone.errs.String(), "the other side has not come within 10ms, run ntbnet selftest there too")
	require.Equal(t, 1, strings.Count(alone.errs.String(), "\n"))
}

func TestBadArgumentsAreNamed(t *testing.T) {
	t.Setenv(fabric.EnvFabric, "")
	for args, want := range map[string]string{
		"":                          "want a command, which is selftest",
		"doctor":                    "want a command, which is selftest",
		"selftest a b":              `"b": want one end of a wire`,
		"selftest --time 0s":        "--time 0s: want 1ms to 1h",
		"selftest --late 0s":        "--wait and --late: want times above 0",
		"selftest file:/none":       "which end of file:/none this is only you know: say node 1 at the one host",
		"selftest shm:x":            "it names 0 ends of wires",
		"selftest nothing":          "want ntb or ntb:ADDRESS of a bridge",
		"selftest ntb:0000:ff:1f.7": "there is no bridge 0000:ff:1f.7",
		"selftest file:/n --node 1": "there is no memory (truncate -s 16M /n makes some)",
	} {
		var out, errs bytes.Buffer
		status := run(context.Background(), strings.Fields(args), &out, &errs)
		require.Contains(t, errs.String(), want, args)
		require.Equal(t, statusUsage, status, args)
		require.Equal(t, 1, strings.Count(errs.String(), "\n"), errs.String())
	}
	require.Equal(t, statusOK, run(context.Background(), []string{"--help"}, io.Discard, io.Discard))
}
