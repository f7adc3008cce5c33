//go:build amd64 || arm64

package fabric

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/hostdir"
)

// A directory that is removed between the look at its name and the look into it is none.
func TestADirectoryThatVanishesIsNotListed(t *testing.T) {
	h := ownHost(hostdir.Find(), ownName(t))
	require.Empty(t, readHosts(t.Context(), []*found{h}, true))
}

// What a process says of itself is shown only if it can be true.
func TestWhatAProcessSaysOfItselfIsChecked(t *testing.T) {
	name := "test-" + strconv.Itoa(os.Getpid()) + "-" + strconv.FormatUint(uint64(rand.Uint32()), 16)
	dir, err := hostdir.Open(hostdir.In(hostdir.Find(), name), true)
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
	good := func() *greeting {
		return &greeting{Version: greetingVersion, Status: &status.Process{Topology: "shm", Node: 1, Nodes: 1, Process: number, UID: 77, User: "x", Ports: []string{"sdp:1"}}}
	}
	peers := func(all ...status.Connection) func(*greeting) {
		return func(g *greeting) { g.Status.Connections = all }
	}
	for _, c := range []struct {
		change func(g *greeting)
		says   string // "" if all is well
	}{
		{peers(status.Connection{Node: 1, Process: 7, Count: 2}, status.Connection{Node: 1, Process: 8, Count: 3}), ""},
		{func(g *greeting) { g.Version = 9 }, "it greets in version 9"},
		{func(g *greeting) { g.Refused = "no" }, `it says nothing of itself: "no"`},
		{func(g *greeting) { g.Status = nil }, `it says nothing of itself: ""`},
		{func(g *greeting) { g.Status.Process++ }, "it says that it is process 2 of node 1"},
		{func(g *greeting) { g.Status.Node = 4 }, "it says that it is process 1 of node 4"},
		{func(g *greeting) { g.Status.Topology = "ring" }, `it says that the fabric is a "ring"`},
		{peers(status.Connection{Node: 1, Process: 7, Count: -2}), "-2 connections with process 7 of node 1"},
		{peers(status.Connection{Node: 1, Process: 7, Count: maxConnections + 1}), "connections with process 7"},
		{peers(status.Connection{Node: 99, Process: 7, Count: 1}), "1 connections with process 7 of node 99"},
		{peers(status.Connection{Node: 1, Process: 70000, Count: 1}), "1 connections with process 70000"},
		{peers(make([]status.Connection, maxPeerings+1)...), "connections with 8193 processes"},
	} {
		answer := good()
		c.change(answer)
		answered := make(chan error, 1)
		go func() {
			conn, err := dir.Accept(ln)
			if err == nil {
				if _, err = readGreeting(conn, maxGreeting); err == nil {
					err = writeGreeting(conn, answer)
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

// A process of another user, unless it is root's, is served counts of connections, no more.
func TestWhatAnotherUserIsServed(t *testing.T) {
	f := mustNode(t, "mem", "ring:"+ownName(t)+"?nodes=2", 1)
	f.Describe(func(bool) []status.Connection {
		return []status.Connection{
			{Node: 1, Process: 7, Count: 1, Local: "a:1", Remote: "b:2", Read: 3, Inline: 4, MMIO: 5, DMA: 6, Doorbells: 7, ReadWaits: 8, RoomWaits: 9},
			{Node: 1, Process: 7, Count: 1, Local: "a:1", Remote: "b:3"},
		}
	}, func(p *status.Process) { p.Warm, p.WarmRoom = 1, 2 })
	f.net.refused.add(errors.New("pid 1, uid 2"))
	served := func(uid int) map[string]any {
		answer := f.net.greeting("")
		_, err := f.net.judge(Peer{UID: uid}, &greeting{Version: greetingVersion, Want: wantStatus}, answer)
		require.NoError(t, err)
		text, err := json.Marshal(answer.Status)
		require.NoError(t, err)
		var fields map[string]any
		require.NoError(t, json.Unmarshal(text, &fields))
		return fields
	}
	for _, uid := range []int{0, os.Geteuid()} {
		own := served(uid)
		require.Equal(t, "pid 1, uid 2", own["last_refusal"])
		require.Len(t, own["connections"], 2)
		require.Equal(t, 1.0, own["warm_bytes"])
		require.Equal(t, 2.0, own["warm_room_bytes"])
	}
	for _, uid := range []int{os.Geteuid() + 1, -1} {
		other := served(uid)
		require.Equal(t, []any{map[string]any{"node": 1.0, "process": 7.0, "count": 2.0}}, other["connections"])
		for key := range other {
			require.Contains(t, []string{"process", "node", "pid", "uid", "gid", "owns_links", "ports", "topology", "nodes", "lanes", "uptime_s", "refused", "hosts", "links", "connections", "drops"}, key)
		}
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
			_, err := removeDead(spec.Place())
			removed <- err
		}()
		s, err := openShmRegistry(spec)
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
