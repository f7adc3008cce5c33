package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/require"
)

func TestBadInputIsOneLineAndStatus2(t *testing.T) {
	ring := "ring:" + fabrictest.Name(t) + "?node=1&nodes=3"
	for _, c := range []struct{ fabric, args, want string }{
		{ring, "--nonsense", "unknown flag: --nonsense"},
		{ring, "start", `unexpected "start"; commands are setup, remove and hosts`},
		{ring, "setup --http 127.0.0.1:1", "unknown flag: --http"},
		{ring, "remove --user root", "unknown flag: --user"},
		{ring, "--mtu many", `--mtu "many": want a whole number`},
		{ring, "--mtu 1279", "--mtu 1279: want 1280 to 65000"},
		{ring, "--mtu 65001", "--mtu 65001: want 1280 to 65000"},
		{ring, "--queue 1X", `--queue "1X": want bytes`},
		{ring, "--queue 2G", "want 128K to 1G"},
		{ring, "--queue 64K", "--queue 65536: want 128K to 1G"},
		{ring, "--net4 10.77.0.0", `--net4 "10.77.0.0": want a network`},
		{ring, "--net4 10.77.0.1/24", "it has bits beyond its length; want 10.77.0.0/24"},
		{ring, "--net4 10.77.0.0/30", "--net4 10.77.0.0/30: want a network of its family with room for 3 nodes"},
		{ring, "--net6 10.77.0.0/24", "--net6 10.77.0.0/24: want a network of its family"},
		{ring, "--net4= --net6=", "give --net4, --net6 or --no-addresses"},
		{ring, "--route 10.0.0.0/8", "want PREFIX=NODE"},
		{ring, "--route 10.0.0.0/8=x", "want the number of a node"},
		{ring, "--route 10.0.0.0/8=1", "want another node, of 1 to 3"},
		{ring, "--route 10.0.0.0/8=4", "want another node, of 1 to 3"},
		{ring, "--device a/b", "--device"},
		{ring, "--device fifteen-letters", "--device"},
		{ring, "--user nosuchuser", `--user "nosuchuser"`},
		{ring, "--http :9477", "want a port of loopback"},
		{ring, "--http 10.77.0.1:9477", "want a port of loopback"},
		{ring, "--http unix:x", "want a port of loopback"},
		{"shm:" + fabrictest.Name(t), "", "the fabric has one node alone"},
		{"shm:" + fabrictest.Name(t), "setup", "want node=I and nodes=N"},
		{"ring:x?node=1", "remove", "want node=I and nodes=N"},
		{"ring:x?node=1", "hosts", "want node=I and nodes=N"},
		{"ring:x?node=1", "--user 1", "want node=I and nodes=N"},
		{"nonsense:", "", "cannot find the SDP fabric"},
	} {
		t.Setenv("SDP_FABRIC", c.fabric)
		var stdout, stderr bytes.Buffer
		require.Equal(t, statusUsage, run(t.Context(), strings.Fields(c.args), &stdout, &stderr), "%s: %s", c.args, &stderr)
		require.Empty(t, stdout.String(), c.args)
		require.True(t, strings.HasPrefix(stderr.String(), "sdp-tun: "), &stderr)
		require.Contains(t, stderr.String(), c.want)
		require.Equal(t, 1, strings.Count(stderr.String(), "\n"), &stderr)
	}
}

func TestHelpAndVersionAreNoErrors(t *testing.T) {
	for args, want := range map[string]string{
		"--help": "--route PREFIX=NODE", "setup --help": "--user NAME", "remove --help": "--device NAME", "--version": "sdp-tun ",
	} {
		var stdout, stderr bytes.Buffer
		require.Equal(t, statusOK, run(context.Background(), strings.Fields(args), &stdout, &stderr), args)
		require.Empty(t, stderr.String())
		require.Contains(t, stdout.String(), want)
	}
}

func TestHosts(t *testing.T) {
	t.Setenv("SDP_FABRIC", "ring:"+fabrictest.Name(t)+"?node=1&nodes=2")
	var stdout, stderr bytes.Buffer
	require.Equal(t, statusOK, run(t.Context(), []string{"hosts"}, &stdout, &stderr))
	require.Empty(t, stderr.String())
	require.Equal(t, "10.77.0.1\tnode1\nfd77::1\tnode1\n10.77.0.2\tnode2\nfd77::2\tnode2\n", stdout.String())
}

// The examples of the help are accepted.
func TestExamplesOfTheHelpParse(t *testing.T) {
	examples := 0
	for line := range strings.Lines(usageHead) {
		_, args, ok := strings.Cut(line, "' sdp-tun")
		if !ok {
			continue
		}
		examples++
		_, err := parseOptions(strings.Fields(args), io.Discard)
		require.NoError(t, err, line)
	}
	require.Equal(t, 2, examples)
}
