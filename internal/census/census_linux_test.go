//go:build amd64 || arm64

package census

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/require"
)

// A directory that is removed between the look at its name and the look into it is none.
func TestADirectoryThatVanishesIsNotListed(t *testing.T) {
	h := ownHost(hostdir.Find(), fabrictest.Name(t))
	require.Empty(t, readHosts(t.Context(), []*found{h}, true))
}

// What a process says of itself is shown only if it can be true.
func TestWhatAProcessSaysOfItselfIsChecked(t *testing.T) {
	name := "test-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatUint(uint64(rand.Uint32()), 16)
	dir, err := hostdir.Open(hostdir.In(hostdir.Find(), name), true)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, dir.Close())
		require.NoError(t, spec.Remove(name))
	})
	number, err := dir.ClaimProcess()
	require.NoError(t, err)
	ln, err := dir.Listen(number)
	require.NoError(t, err)
	defer ln.Close()
	good := func() *greeting.Message {
		return &greeting.Message{Version: greeting.Version, Status: &status.Process{Topology: "shm", Node: 1, Nodes: 1, Process: number, UID: 77, User: "x", Ports: []string{"sdp:1"}}}
	}
	peers := func(all ...status.Connection) func(*greeting.Message) {
		return func(g *greeting.Message) { g.Status.Connections = all }
	}
	for _, c := range []struct {
		change func(g *greeting.Message)
		says   string // "" if all is well
	}{
		{peers(status.Connection{Node: 1, Process: 7, Count: 2}, status.Connection{Node: 1, Process: 8, Count: 3}), ""},
		{func(g *greeting.Message) { g.Version = 9 }, "it greets in version 9"},
		{func(g *greeting.Message) { g.Refused = "no" }, `it says nothing of itself: "no"`},
		{func(g *greeting.Message) { g.Status = nil }, `it says nothing of itself: ""`},
		{func(g *greeting.Message) { g.Status.Process++ }, "it says that it is process 2 of node 1"},
		{func(g *greeting.Message) { g.Status.Node = 4 }, "it says that it is process 1 of node 4"},
		{func(g *greeting.Message) { g.Status.Topology = "ring" }, `it says that the fabric is a "ring"`},
		{peers(status.Connection{Node: 1, Process: 7, Count: -2}), "-2 connections with process 7 of node 1"},
		{peers(status.Connection{Node: 1, Process: 7, Count: greeting.MaxConnections + 1}), "connections with process 7"},
		{peers(status.Connection{Node: 99, Process: 7, Count: 1}), "1 connections with process 7 of node 99"},
		{peers(status.Connection{Node: 1, Process: 70000, Count: 1}), "1 connections with process 70000"},
		{peers(make([]status.Connection, greeting.MaxPeerings+1)...), "connections with 8193 processes"},
	} {
		answer := good()
		c.change(answer)
		answered := make(chan error, 1)
		go func() {
			conn, err := dir.Accept(ln)
			if err == nil {
				if _, err = greeting.Read(conn, greeting.MaxMessage); err == nil {
					err = greeting.Write(conn, answer)
				}
				conn.Close()
			}
			answered <- err
		}()
		all, err := Hosts(context.Background(), "shm:"+name)
		require.NoError(t, err)
		require.NoError(t, <-answered)
		require.Len(t, all, 1)
		require.Equal(t, "shm:"+name, all[0].Fabric)
		require.Len(t, all[0].Processes, 1)
		p := all[0].Processes[0]
		require.Equal(t, os.Getpid(), p.PID, "the kernel says it")
		require.Equal(t, os.Geteuid(), p.UID)
		require.NotEqual(t, "x", p.User)
		require.Empty(t, p.Ports, "the directory says it")
		if c.says == "" {
			require.Empty(t, p.Error)
			require.Equal(t, answer.Status.Connections, p.Connections)
			continue
		}
		require.Contains(t, p.Error, c.says)
		require.Empty(t, p.Connections)
	}
}
