package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/leak"
	"github.com/ntbnet/ntbnet/internal/perf"
	"github.com/ntbnet/ntbnet/internal/perf/hops"
	"github.com/ntbnet/ntbnet/sdp"
)

func TestChains(t *testing.T) {
	p := newProgram(t, nil, "ring", "--only", "chains", "--hops", "1,3", "--rounds", "2", "--duration", "2ms", "--json")
	require.Zero(t, p.run(t), p.stderr.String())
	assert.Empty(t, p.stderr.String())
	var r hops.Report
	dec := json.NewDecoder(&p.stdout)
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&r))
	assert.Empty(t, r.Rows)
	assert.Len(t, r.Yield, 2)
	require.Len(t, r.Chains, 8)
	for i, row := range r.Chains {
		kind := []string{"sdp", "tcp", "unix", "bare"}[i%4]
		assert.Equal(t, kind, row.Kind)
		assert.Equal(t, 1+i/4*2, row.Hops)
		for _, test := range []*hops.ChainTest{row.RoundTrip, row.OneWay} {
			require.Len(t, test.Rounds, 2)
			assert.Len(t, test.TimesFasterThan, 3)
			for _, round := range test.Rounds {
				assert.Positive(t, round.Value)
				assert.Positive(t, round.Messages)
				assert.Positive(t, round.Ends.CPU)
				assert.Equal(t, row.Hops > 1, round.Forwarders.CPU > 0)
				assert.Positive(t, round.Yield)
				assert.Positive(t, round.Turn)
				if kind != "bare" || row.Hops == 1 {
					assert.Zero(t, round.Yields)
				} else if test == row.RoundTrip { // a stream may leave nothing to wait for
					assert.Positive(t, round.Yields)
				}
				if row.Hops > 1 && r.NotCounted == "" {
					require.NotNil(t, round.Calls)
					assert.Positive(t, round.Calls.Messages)
					assert.Positive(t, round.Calls.Forwarders)
					assert.Positive(t, round.Calls.Ends)
					assert.Equal(t, kind == "sdp", round.Calls.Forwarded > 0)
				} else {
					assert.Nil(t, round.Calls)
				}
				if kind != "sdp" {
					assert.Nil(t, round.Frames)
					continue
				}
				// Two forwarders send each message on.
				require.NotNil(t, round.Frames)
				assert.GreaterOrEqual(t, round.Frames.Forwarded, uint64((row.Hops-1)*round.Messages))
				assert.Equal(t, row.Hops > 1, round.Frames.Offers+round.Frames.Wakes > 0)
			}
		}
	}
}

func TestChainsAsTable(t *testing.T) {
	if testing.Short() {
		t.Skip("TestChains has the same run")
	}
	p := newProgram(t, nil, "ring", "--only", "chains", "--hops", "2", "--rounds", "1", "--duration", "1ms")
	require.Zero(t, p.run(t), p.stderr.String())
	for _, row := range []string{
		"64 B, to and fro", "64 KiB, one way", "CPU of 64 B", "sleeps of 64 KiB", "against tcp", "against unix", "times bare",
		"CPU less yields, µs", "wake-ups", "system calls", "doorbells rung by it",
	} {
		assert.Contains(t, p.stdout.String(), row)
	}
	assert.NotContains(t, p.stdout.String(), "lanes")
}

// A chain of which a process has died is reported, and its others end.
func TestADeadProcessOfAChainIsReported(t *testing.T) {
	commands := []string{relayCommand, nodeCommand, clientCommand, bareCommand}
	if testing.Short() {
		commands = commands[:1]
	}
	for _, command := range commands {
		p := newProgram(t, nil, "ring", "--only", "chains", "--hops", "2", "--rounds", "1000", "--duration", "1ms")
		p.start(t)
		p.childThatRuns(t, bareCommand) // these are started last
		require.NoError(t, syscall.Kill(p.childThatRuns(t, command), syscall.SIGKILL))
		assert.Equal(t, 1, p.wait(t), command)
		assert.Contains(t, p.stderr.String(), "sdp-perf: ")
	}
}

func TestChainsInterruptedOrKilled(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGKILL} {
		p := newProgram(t, nil, "ring", "--only", "chains", "--hops", "2", "--rounds", "1000", "--duration", "1ms")
		p.start(t)
		p.childThatRuns(t, bareCommand) // these are started last
		require.NoError(t, p.Process.Signal(sig))
		if sig == syscall.SIGINT {
			assert.Equal(t, exitInterrupted, p.wait(t))
			assertOneLine(t, p.stderr.String(), "interrupted")
		} else {
			assert.Equal(t, -1, p.wait(t), "and no process outlives it")
			assert.Empty(t, p.fabrics(t))
		}
	}
}

// What has arrived before one side closes goes on to the other one, and the end after it.
func TestARelayPassesOnDataAndEnds(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			leak.Check(t)
			pair := func(name string) (net.Listener, perf.Endpoint) {
				e := perf.Endpoint{Network: network, Address: "127.0.0.1:0"}
				if network == "unix" {
					e.Address = filepath.Join(t.TempDir(), name)
				}
				ln, err := listen(context.Background(), e)
				require.NoError(t, err)
				t.Cleanup(func() { ln.Close() })
				return ln, whereItListens(ln, e)
			}
			ln, next := pair("next")
			front, at := pair("front")
			ended := make(chan error, 1)
			go func() {
				c, err := front.Accept()
				if err == nil {
					err = relay(context.Background(), c, next)
				}
				ended <- err
			}()
			c, err := dial(context.Background(), at)
			require.NoError(t, err)
			defer c.Close()
			s, err := ln.Accept()
			require.NoError(t, err)
			defer s.Close()
			_, err = c.Write([]byte("there"))
			require.NoError(t, err)
			require.NoError(t, c.(interface{ CloseWrite() error }).CloseWrite())
			got, err := io.ReadAll(s)
			require.NoError(t, err)
			assert.Equal(t, "there", string(got))
			_, err = s.Write([]byte("back"))
			require.NoError(t, err)
			require.NoError(t, s.Close())
			got, err = io.ReadAll(c)
			require.NoError(t, err)
			assert.Equal(t, "back", string(got))
			assert.NoError(t, <-ended)
		})
	}
}

func TestProcessesOfAChainAreNobodysBusiness(t *testing.T) {
	for _, args := range [][]string{
		{relayCommand}, {relayCommand, "d", "tcp://127.0.0.1:0", "x"}, {clientCommand}, {clientCommand, "x"},
		{bareCommand}, {bareCommand, "2", "x"}, {bareCommand, "2", "3"}, {nodeCommand},
	} {
		p := newProgram(t, nil, args...)
		assert.Equal(t, exitBadInput, p.run(t), args)
		assertOneLine(t, p.stderr.String(), "is started by sdp-perf itself")
	}
}

func TestSleepsOfBothEndsAreCounted(t *testing.T) {
	leak.Check(t)
	f, err := sdp.Open("mem:" + t.Name() + "?spin=0")
	require.NoError(t, err)
	defer f.Close()
	ln, err := f.Listen(sdp.Network, ":0")
	require.NoError(t, err)
	defer ln.Close()
	c, err := f.Dial(sdp.Network, ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	s, err := ln.Accept()
	require.NoError(t, err)
	defer s.Close()
	assert.Zero(t, sleeps(c))
	echoed := make(chan error, 1)
	go func() {
		_, err := io.CopyN(s, s, 3)
		echoed <- err
	}()
	b := make([]byte, 1)
	for range 3 {
		// The other end sleeps when it has waited for a while, and then this one waits for it.
		require.Eventually(t, func() bool { return s.(*sdp.Conn).Stats().ReadParks > 0 }, time.Minute, time.Millisecond)
		_, err := c.Write(b)
		require.NoError(t, err)
		_, err = io.ReadFull(c, b)
		require.NoError(t, err)
	}
	require.NoError(t, <-echoed)
	assert.Positive(t, sleeps(c))
	assert.Zero(t, sleeps(nil))
}
