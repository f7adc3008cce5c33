package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/perf/bench"
)

// TestBenchHasEveryRow runs the whole command, as short as possible.
func TestBenchHasEveryRow(t *testing.T) {
	svg := filepath.Join(t.TempDir(), "picture.svg")
	p := newProgram(t, nil, "bench", "--quick", "--json", "--svg", svg)
	require.Zero(t, p.run(t), p.stderr.String())
	assert.Empty(t, p.stderr.String(), "no progress when nobody looks")
	var r bench.Report
	dec := json.NewDecoder(&p.stdout)
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&r))

	var names []string
	for _, row := range r.Rows {
		names = append(names, row.Name)
		require.Len(t, row.Results, 3)
		for i, transport := range []string{"sdp", "tcp", "unix"} {
			res := row.Results[i]
			assert.Equal(t, transport, res.Transport)
			// SDP has no figure for parked waits unless spinning is turned off.
			if len(res.Rounds) == 0 && transport == "sdp" && row.Item == "parked" {
				assert.Contains(t, res.Why, "it spins")
				continue
			}
			assert.Len(t, res.Rounds, 1, "%s: %s: %s", row.Name, transport, res.Why)
		}
		// Smaller messages than 64 KiB have no limit beside them.
		assert.Equal(t, row.Item == "roundtrip" || row.Item == "oneway" && row.Unit != "%" && row.Name != "one way, 16 KiB", row.Limit != nil, row.Name)
	}
	assert.Equal(t, []string{
		"round trip, 56 B", "round trip, 64 B",
		"one way, 16 KiB", "one way, 64 KiB", "the same, of two copies in its round", "one way, 1 MiB",
		"stream of 64 B writes",
		"round trip, 64 B, spin off",
		"round trip, 64 B, all processors busy", "one way, 64 KiB, all processors busy",
		"one way, 64 KiB, 64 connections", "slowest of them, of its fair share",
		"round trips, 64 B, 64 connections", "slowest of those in a second, of its fair share", "p99 of those, times the median",
		"connect, 1 B to and fro, close",
		"HTTP GET of 1 KiB, clients: 1", "HTTP GET of 1 KiB, clients: 32", "HTTP GET of 1 MiB, clients: 1",
		"idle connections, 20: CPU", "idle connections, 20: PSS of each",
	}, names)
	require.Len(t, r.Limits.CopiesRounds, 1)
	require.Len(t, r.Limits.DoubleRounds, 1)
	assert.Equal(t, r.Limits.Double, *r.Rows[1].Limit)
	for i, res := range r.Rows[3].Results {
		assert.InEpsilon(t, 100*r.Rows[3].Results[i].Rounds[0]/r.Limits.CopiesRounds[0], r.Rows[4].Results[i].Rounds[0], 1e-9, res.Transport)
	}
	require.Len(t, r.Sweep, 3)
	b, err := os.ReadFile(svg)
	require.NoError(t, err)
	assert.True(t, strings.HasSuffix(string(b), "</svg>\n"))
}

func TestBenchTableOfSomeRows(t *testing.T) {
	p := newProgram(t, nil, "bench", "--quick", "--rounds", "2", "--duration", "2ms", "--items", "connect", "--transports", "unix,tcp")
	require.Zero(t, p.run(t), p.stderr.String())
	out := p.stdout.String()
	for _, s := range []string{"rounds: 2, of 2 ms", "one cache line to and fro", "connect, 1 B to and fro, close", "against tcp"} {
		assert.Contains(t, out, s)
	}
	assert.NotContains(t, out, "sdp")
	assert.NotContains(t, out, "HTTP")
}

// The program itself is a worker that implements the protocol.
func TestBenchMeasuresAWorker(t *testing.T) {
	exe, err := os.Executable()
	require.NoError(t, err)
	script := filepath.Join(t.TempDir(), "worker")
	require.NoError(t, os.WriteFile(script, []byte("#!/bin/sh\nexec '"+exe+"' worker unix\n"), 0o755))
	p := newProgram(t, nil, "bench", "--quick", "--json", "--items", "stream", "--transports", "tcp", "--shmipc", script)
	require.Zero(t, p.run(t), p.stderr.String())
	var r bench.Report
	require.NoError(t, json.NewDecoder(&p.stdout).Decode(&r))
	require.Len(t, r.Rows, 1)
	assert.Contains(t, r.Rows[0].Results[0].TimesBetterThan, "unix")
}

func TestIdleByItself(t *testing.T) {
	for _, transport := range []string{"sdp", "tcp", "unix"} {
		p := newProgram(t, nil, "idle", "--transport", transport, "--connections", "50", "--duration", "10ms", "--json")
		require.Zero(t, p.run(t), p.stderr.String())
		var r bench.IdleReport
		require.NoError(t, json.NewDecoder(&p.stdout).Decode(&r))
		assert.Equal(t, 50, r.Connections)
		assert.Equal(t, transport, r.Transport)
		assert.Positive(t, r.Memory, "a connection without memory")
	}
	p := newProgram(t, nil, "idle", "--connections", "2", "--duration", "1ms")
	require.Zero(t, p.run(t), p.stderr.String())
	assert.Contains(t, p.stdout.String(), "PSS of both processes")
}

func TestBenchInterruptedOrKilledLeavesNothing(t *testing.T) {
	for _, items := range []string{"busy", "parked", "idle"} {
		for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
			p := newProgram(t, nil, "bench", "--quick", "--items", items, "--transports", "sdp", "--duration", "1m")
			p.start(t)
			eventually(t, "the third process runs", func() bool { return len(findChildren(t, p.Process.Pid)) >= 3 })
			require.NoError(t, p.Process.Signal(sig))
			if sig == syscall.SIGINT {
				assert.Equal(t, exitInterrupted, p.wait(t), p.stderr.String())
				assertOneLine(t, p.stderr.String(), "interrupted")
			} else {
				assert.Equal(t, -1, p.wait(t))
			}
		}
	}
}

func TestBadInputOfTheNewCommands(t *testing.T) {
	for _, c := range []struct {
		args string
		says string
	}{
		{"bench --items frob", `--items: unknown item "frob": use roundtrip, oneway`},
		{"bench --rounds 0", "--rounds 0: use a number from 1 to 1000"},
		{"bench --duration 0s", "use a time from 1ms to 1m"},
		{"bench --transports udp", `unknown transport "udp"`},
		{"bench --svg /nonexistent/f", "--svg: open /nonexistent/f"},
		{"bench --shmipc /nonexistent/f", "--shmipc: "},
		{"idle --connections 0", "use a number from 1 to 100000"},
		{"idle --duration 0s", "use a time from 1ms to 10m"},
		{"idle --transport udp", `unknown transport "udp"`},
		{"limits frob", "unexpected argument"},
		{"worker", "is started by sdp-perf itself"},
		{"worker udp", "is started by sdp-perf itself"},
		{"load x", "is started by sdp-perf itself"},
		{"idle-worker", "is started by sdp-perf itself"},
		{"limits-helper", "is started by sdp-perf itself"},
	} {
		t.Run(c.args, func(t *testing.T) {
			p := newProgram(t, nil, strings.Fields(c.args)...)
			assert.Equal(t, 2, p.run(t))
			assertOneLine(t, p.stderr.String(), c.says)
			assert.Empty(t, p.stdout.String())
		})
	}
}

func TestAFabricThatIsNoneIsBadInput(t *testing.T) {
	for _, args := range []string{"bench --rounds 1 --items roundtrip", "idle --connections 1", "--rounds 1"} {
		p := newProgram(t, []string{"SDP_FABRIC=foo"}, strings.Fields(args)...)
		assert.Equal(t, 2, p.run(t), args)
		assertOneLine(t, p.stderr.String(), "want shm:NAME")
	}
}
