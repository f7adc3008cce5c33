package main

import (
	"bytes"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
)

// runProxy runs the program without signals, so it must end by itself.
func runProxy(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(args, &out, &errs, make(chan os.Signal, 1))
	return status, out.String(), errs.String()
}

func TestBadInputIsOneLineAndStatus2(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	used := "tcp://" + ln.Addr().String()
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	own := "shm:" + fabrictest.Name(t)
	t.Setenv("SDP_FABRIC", own)
	const good = "--map=tcp://127.0.0.1:0=tcp://127.0.0.1:1"
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "give --map LISTEN=TARGET, as in"},
		{[]string{"--map"}, "flag needs an argument: --map"},
		{[]string{"--nonsense"}, "unknown flag: --nonsense"},
		{[]string{"tcp://:1=tcp://:2"}, "maps are given with --map"},
		{[]string{"--map", "tcp://:1"}, "must be LISTEN=TARGET"},
		{[]string{"--map", "http://:1=tcp://:2"}, "unknown scheme"},
		{[]string{"--map", "tcp://:1=tcp://:70000"}, "is not a port"},
		{[]string{good, "--dial-timeout", "soon"}, ": want a "},
		{[]string{good, "--drain-timeout", "-1s"}, `"--drain-timeout" flag: -1s: cannot be negative`},
		{[]string{good, "--max-connections", "-1"}, `"--max-connections" flag: -1: cannot be negative`},
		{[]string{good, "--max-connections", "many"}, ": want a "},
		{[]string{good, "--allow-user", "no such user"}, `user "no such user": `},
		{[]string{good, "--allow-group", "no-such-group"}, `group "no-such-group": `},
		{[]string{good, "--allow-group", ""}, `"": want a name or number`},
		{[]string{good, "--allow-user", "0"}, "TCP does not know whose process connects"},
		{[]string{"--map", used + "=tcp://127.0.0.1:1"}, "address already in use; another program listens there"},
		{[]string{good, "--quiet", "--map", used + "=tcp://127.0.0.1:1"}, "address already in use"},
		{[]string{"--config", file, good}, "--map: write it into " + file},
		{[]string{"--config", file, "--quiet"}, "--quiet: write it into " + file},
		{[]string{"--config", file}, file + ":1:1: nothing is in it: want maps"},
		{[]string{"--config", file + "x"}, file + "x: no such file or directory"},
		{[]string{"check", file}, file + ":1:1: nothing is in it: want maps"},
		{[]string{"check"}, "check: want one file"},
		{[]string{"status"}, "status: want the address of --metrics"},
		{[]string{"status", ":1"}, "want a port of loopback"},
		{[]string{good, "--metrics", "0.0.0.0:1"}, "want a port of loopback"},
		{[]string{good, "--metrics", strings.TrimPrefix(used, "tcp://")}, "metrics " + strings.TrimPrefix(used, "tcp://") + ": address already in use"},
		{[]string{good, "--transparent"}, "a transparent map has no target"},
		{[]string{"--transparent", "--map=sdp://:1"}, "nothing is redirected to sdp://:1"},
		{[]string{"--transparent", "--map=tcp://127.0.0.1:0"}, "has no addresses of hosts; give it some, as in host2="},
		{[]string{good, "--log", "xml"}, "want text or json"},
		{[]string{"check", "--map", "x"}, "unknown flag: --map"},
		{[]string{good, "--map=tcp://127.0.0.1:1=tcp://:2", "--map=tcp://127.0.0.1:1=tcp://:3"}, "two maps listen on tcp://127.0.0.1:1"},
		{[]string{"--map=tcp://127.0.0.1:0=sdp://node9:1"}, "the target cannot be: "},
		{[]string{"--own"}, "--own: the fabric is \"" + own + "\", want"},
		{[]string{"--map", "unix://" + file + "=tcp://:1"}, "not a socket; remove it"},
	} {
		status, stdout, stderr := runProxy(c.args...)
		if status != 2 || stdout != "" {
			t.Errorf("%q: status %d, stdout %q; want 2 and nothing", c.args, status, stdout)
		}
		if !strings.HasPrefix(stderr, "sdp-proxy: ") || !strings.Contains(stderr, c.want) || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: %q, want one line with %q", c.args, stderr, c.want)
		}
	}
}

func TestHelpTellsAllFlagsAndIsNoError(t *testing.T) {
	status, stdout, stderr := runProxy("--help")
	if status != 0 || stderr != "" {
		t.Errorf("status %d, stderr %q", status, stderr)
	}
	for _, want := range []string{
		"--map", "--own", "--dial-timeout", "--drain-timeout", "--max-connections", "--stats", "--quiet", "SIGUSR1", "SIGHUP",
		"sdp-proxy --map tcp://127.0.0.1:6380=sdp://localhost:7000",
	} {
		if !strings.Contains(stdout, want) {
			t.Errorf("the help does not tell %q", want)
		}
	}
}

func TestVersionIsNoError(t *testing.T) {
	status, stdout, stderr := runProxy("--version")
	if status != 0 || stderr != "" || !strings.HasPrefix(stdout, "sdp-proxy ") || strings.Count(stdout, "\n") != 1 {
		t.Errorf("status %d, stdout %q, stderr %q", status, stdout, stderr)
	}
}

// The examples of the help must be accepted.
func TestExamplesOfTheHelpParse(t *testing.T) {
	examples := 0
	for line := range strings.Lines(strings.ReplaceAll(usageHead, "\\\n", "")) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != "sdp-proxy" || fields[1] != "--map" {
			continue
		}
		examples++
		o, err := parseOptions(fields[1:], nil)
		if err != nil {
			t.Errorf("%q: %v", line, err)
		}
		if len(o.config.Maps) != strings.Count(line, "--map") {
			t.Errorf("%q: %d maps", line, len(o.config.Maps))
		}
	}
	if examples < 3 {
		t.Errorf("only %d examples were found", examples)
	}
}

func TestLimitsHaveTheDefaultsOfTheHelp(t *testing.T) {
	o, err := parseOptions([]string{"--map", "tcp://:1=sdp://localhost:2"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := o.config.Maps[0]
	if m.DialTimeout != 10*time.Second || o.config.DrainTimeout != 30*time.Second {
		t.Errorf("dial %v, drain %v", m.DialTimeout, o.config.DrainTimeout)
	}
	if m.MaxConnections != 4096 {
		t.Errorf("max-connections %d", m.MaxConnections)
	}
}
