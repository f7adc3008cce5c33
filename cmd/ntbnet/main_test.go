package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Variables that have the test binary run the program, or be a process of a fabric.
const (
	asProgram = "NTBNET_TEST_AS_PROGRAM"
	asServer  = "NTBNET_TEST_AS_SERVER" // of this fabric
)

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	if name := os.Getenv(asServer); name != "" {
		if err := serve(name); err != nil {
			panic(err)
		}
		os.Exit(0)
	}
	os.Exit(fabrictest.Main(m))
}

// serve echoes on port 7007 of a fabric until the standard input ends.
func serve(name string) error {
	f, err := sdp.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	ln, err := f.Listen("sdp", ":7007")
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go io.Copy(c, c)
		}
	}()
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// server starts a process that serves in a fabric, until the test's end.
func server(t *testing.T, name string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asServer+"="+name, "GORACE=atexit_sleep_ms=0")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { stdin.Close(); _ = cmd.Wait() })
	return cmd
}

// program is a process of the program that runs to its end.
type program struct {
	*exec.Cmd
	stdout, stderr bytes.Buffer
}

func newProgram(env []string, args ...string) *program {
	p := &program{Cmd: exec.Command(os.Args[0], args...)}
	p.Env = append(append(os.Environ(), asProgram+"=1", "GORACE=atexit_sleep_ms=0"), env...)
	p.Stdout, p.Stderr = &p.stdout, &p.stderr
	return p
}

// run returns the exit status.
func (p *program) run() int {
	_ = p.Run() // the state says how it ended
	return p.ProcessState.ExitCode()
}

func assertOneLine(t *testing.T, text, says string) {
	t.Helper()
	assert.True(t, strings.HasPrefix(text, "ntbnet: "), "%q", text)
	assert.Equal(t, 1, strings.Count(text, "\n"), "%q", text)
	assert.True(t, strings.HasSuffix(text, "\n"), "%q", text)
	assert.Contains(t, text, says)
}

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	require.Eventually(t, ok, 3*time.Minute, 5*time.Millisecond, what)
}

func TestBadArgumentsAreNamed(t *testing.T) {
	t.Setenv(spec.EnvFabric, "")
	for args, want := range map[string]string{
		"":                             "want a command: ls, doctor, topology, top, selftest",
		"frob":                         `unknown command "frob": want ls, doctor, topology, top, selftest`,
		"--frob":                       "unknown flag: --frob",
		"doctor --frob":                "unknown flag: --frob",
		"doctor extra":                 `"extra": unexpected argument`,
		"doctor --fabric shop":         "--fabric: fabric \"shop\": want shm:NAME",
		"ls --frob":                    "unknown flag: --frob",
		"ls --fabric shop":             "--fabric: fabric \"shop\": want shm:NAME",
		"ls --fabric mem:shop":         "is within one process, and has no directory",
		"ls --remove extra":            `"extra": unexpected argument`,
		"topology --fabric shm:a":      "want one of several hosts",
		"topology":                     "name one by --fabric or SDP_FABRIC",
		"top --fabric shop":            "--fabric: fabric \"shop\": want shm:NAME",
		"top --interval 1ms":           "--interval 1ms: want 10ms to 1h",
		"top --rows 0":                 "--count and --rows: want 1 or more",
		"selftest a b":                 `"b": want one end of a wire`,
		"selftest --time 0s":           "--time 0s: want 1ms to 1h",
		"selftest --json /none/report": "--json: stat /none: no such file or directory",
		"selftest --late 0s":           "--wait and --late: want times above 0",
		"selftest file:/none":          "which end of file:/none this is only you know: say node 1 at the one host",
		"selftest shm:x":               "it names 0 ends of wires",
		"selftest nothing":             "want ntb or ntb:ADDRESS of a bridge",
		"selftest ntb:0000:ff:1f.7":    "there is no bridge 0000:ff:1f.7",
		"selftest file:/n --node 1":    "there is no memory (truncate -s 16M /n makes some)",
	} {
		var out, errs bytes.Buffer
		status := run(context.Background(), strings.Fields(args), &out, &errs)
		assert.Equal(t, statusUsage, status, args)
		assertOneLine(t, errs.String(), want)
		assert.Empty(t, out.String())
	}
}

// Other processes have said some of what JSON has.
func TestJSONHasNothingThatATerminalObeys(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, writeJSON(&out, []string{"a\u202eb\u009bc\x1bd"}))
	assert.Equal(t, "[\n  \"a\ufffdb\ufffdc\\u001bd\"\n]\n", out.String())
}

func TestHelpIsEnoughToStart(t *testing.T) {
	for args, want := range map[string][]string{
		"--help":          {"Usage: ntbnet COMMAND", "ntbnet ls", "ntbnet doctor", "ntbnet topology", "ntbnet selftest", "Exit status"},
		"help":            {"Usage: ntbnet COMMAND"},
		"--version":       {"ntbnet ", ", commit "},
		"doctor --help":   {"Usage: ntbnet doctor [flags]\n", "--fabric FABRIC", "--json"},
		"ls --help":       {"Usage: ntbnet ls [flags]\n", "--remove", "--json"},
		"topology --help": {"Usage: ntbnet topology [flags]\n", "--fabric", "--svg"},
		"selftest --help": {"Usage: ntbnet selftest [flags] [END]\n", "--late", "Exit status"},
	} {
		var out, errs bytes.Buffer
		require.Equal(t, statusOK, run(context.Background(), strings.Fields(args), &out, &errs), args)
		assert.Empty(t, errs.String())
		for _, s := range want {
			assert.Contains(t, out.String(), s, args)
		}
	}
}
