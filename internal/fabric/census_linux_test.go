//go:build amd64 || arm64

package fabric

import (
	"context"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/hostdir"
)

// What a process says of itself is shown only if it can be true.
func TestWhatAProcessSaysOfItselfIsChecked(t *testing.T) {
	name := "test-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatUint(uint64(rand.Uint32()), 16)
	dir, err := hostdir.Open(hostdir.In(hostdir.Own(), name), true)
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, dir.Close())
		require.NoError(t, Remove(name))
	})
	number, err := dir.ClaimProcess()
	require.NoError(t, err)
	ln, err := dir.Listen(number)
	require.NoError(t, err)
	defer ln.Close()
	good := greeting{Version: greetingVersion, Topology: "shm", Node: 1, Nodes: 1, Process: number}
	many := make([]Peering, maxPeerings+1)
	for _, c := range []struct {
		change func(g *greeting)
		says   string // "" if all is well
	}{
		{func(g *greeting) { g.Peers = []Peering{{1, 7, 2}, {1, 8, 3}} }, ""},
		{func(g *greeting) { g.Version = 9 }, "it greets in version 9"},
		{func(g *greeting) { g.Refused = "no" }, `it tells nothing: "no"`},
		{func(g *greeting) { g.Process++ }, "it says that it is process 2 of node 1"},
		{func(g *greeting) { g.Node = 4 }, "it says that it is process 1 of node 4"},
		{func(g *greeting) { g.Topology = "ring" }, `it says that the fabric is a "ring"`},
		{func(g *greeting) { g.Peers = []Peering{{1, 7, -2}} }, "-2 connections with process 7 of node 1"},
		{func(g *greeting) { g.Peers = []Peering{{1, 7, maxConnections + 1}} }, "connections with process 7"},
		{func(g *greeting) { g.Peers = []Peering{{99, 7, 1}} }, "1 connections with process 7 of node 99"},
		{func(g *greeting) { g.Peers = []Peering{{1, 70000, 1}} }, "1 connections with process 70000"},
		{func(g *greeting) { g.Peers = many }, "connections with 8193 processes"},
	} {
		answer := good
		c.change(&answer)
		answered := make(chan error, 1)
		go func() {
			conn, err := dir.Accept(ln)
			if err == nil {
				if _, err = readGreeting(conn, maxGreeting); err == nil {
					err = writeGreeting(conn, &answer)
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
		require.Equal(t, os.Getpid(), p.User.PID, "the kernel says it")
		require.Equal(t, os.Geteuid(), p.User.UID)
		if c.says == "" {
			require.Empty(t, p.Error)
			require.Equal(t, 5, p.Connections)
			require.Equal(t, answer.Peers, p.Peers)
			continue
		}
		require.Contains(t, p.Error, c.says)
		require.Zero(t, p.Connections)
		require.Empty(t, p.Peers)
	}
}

func TestTheSpecOfAMemberIsThatOfTheSameHost(t *testing.T) {
	for text, want := range map[string]string{
		"shm:x":                 "shm:x",
		"shm:x?spin=0":          "shm:x",
		"ring:x?node=2&nodes=3": "ring:x?node=2",
		"mesh:/x?node=1&lanes=2&nodes=2&group=a&owner=b,c&window=131072": "mesh:/x?group=a&node=1&owner=b%2Cc&window=131072",
	} {
		spec, err := ParseSpec(text)
		require.NoError(t, err)
		require.Equal(t, want, spec.Member())
		again, err := ParseSpec(want)
		require.NoError(t, err)
		require.Equal(t, spec.Place(), again.Place())
	}
}

// A process that comes while its empty directory is removed is not left alone in it.
func TestAFabricIsOpenedWhileItIsRemoved(t *testing.T) {
	spec, err := ParseSpec("shm:test-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatUint(uint64(rand.Uint32()), 16))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, Remove(spec.Name)) })
	for range 200 {
		require.NoError(t, Remove(spec.Name))
		dir, err := hostdir.Open(spec.Place(), true) // so that there is something to remove
		require.NoError(t, err)
		require.NoError(t, dir.Close())
		removed := make(chan error, 1)
		go func() {
			_, err := (&HostView{place: spec.Place()}).RemoveDead()
			removed <- err
		}()
		s, err := openShmStation(spec)
		require.NoError(t, err)
		require.NoError(t, <-removed)
		dir, err = hostdir.Open(spec.Place(), false)
		require.NoError(t, err)
		all, err := dir.Processes()
		require.NoError(t, err)
		require.Equal(t, []int{s.process()}, all)
		require.NoError(t, dir.Close())
		s.close()
	}
}
