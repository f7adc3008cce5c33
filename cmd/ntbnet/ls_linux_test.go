package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// lsJSON runs ls.
func lsJSON(t *testing.T, args ...string) (r listing) {
	t.Helper()
	p := newProgram(nil, append([]string{"ls", "--json"}, args...)...)
	require.Zero(t, p.run(), p.stderr.String())
	dec := json.NewDecoder(&p.stdout)
	dec.DisallowUnknownFields()
	require.NoError(t, dec.Decode(&r))
	return r
}

func TestListShowsWhoIsInAFabricAndRemovesWhatIsDead(t *testing.T) {
	name := "shm:" + fabrictest.Name(t)
	f, err := sdp.Open(name)
	require.NoError(t, err)
	defer f.Close()
	srv := server(t, name)
	var c net.Conn
	eventually(t, "the server listens", func() bool {
		c, err = f.Dial("sdp", "localhost:7007")
		return err == nil
	})
	defer c.Close()
	ln, err := f.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	port := ln.Addr().(*net.TCPAddr).Port

	var r listing
	eventually(t, "both have the connection", func() bool {
		r = lsJSON(t, "--fabric", name)
		p := r.Fabrics[0].Processes
		return len(p) == 2 && p[0].Connections == 1 && p[1].Connections == 1
	})
	require.Len(t, r.Fabrics, 1)
	h := r.Fabrics[0]
	user := func(pid int) *fabric.UserView {
		u := h.Processes[0].User
		require.NotNil(t, u)
		return &fabric.UserView{PID: pid, UID: os.Geteuid(), GID: os.Getegid(), Name: u.Name}
	}
	assert.Equal(t, name, h.Fabric)
	assert.Empty(t, h.Dead)
	assert.Equal(t, []fabric.ProcessView{
		{Process: 1, User: user(os.Getpid()), Ports: []fabric.PortView{{Port: port, Network: "sdp"}, {Port: port, Network: "tcp"}}, Connections: 1, Peers: []fabric.Peering{{Node: 1, Process: 2, Connections: 1}}},
		{Process: 2, User: user(srv.Process.Pid), Ports: []fabric.PortView{{Port: 7007, Network: "sdp"}}, Connections: 1, Peers: []fabric.Peering{{Node: 1, Process: 1, Connections: 1}}},
	}, h.Processes)
	text := newProgram(nil, "ls", "--fabric", name)
	require.Zero(t, text.run(), text.stderr.String())
	assert.Regexp(t, fmt.Sprintf(`(?m)^%s in %s$`, name, h.Directory), text.stdout.String())
	assert.Regexp(t, fmt.Sprintf(`(?m)^  2 +%d +\S+ \(uid %d\) +sdp :7007 +1 with process 1$`, srv.Process.Pid, os.Geteuid()), text.stdout.String())

	// A process that is stopped does not answer.
	require.NoError(t, srv.Process.Signal(syscall.SIGSTOP))
	p := lsJSON(t, "--fabric", name).Fabrics[0].Processes[1]
	assert.NotEmpty(t, p.Error)
	assert.Equal(t, user(srv.Process.Pid), p.User)
	assert.Len(t, p.Ports, 1)

	require.NoError(t, srv.Process.Kill())
	_ = srv.Wait()
	dead := lsJSON(t, "--fabric", name).Fabrics[0].Dead
	require.Len(t, dead, 1)
	require.FileExists(t, dead[0])
	text = newProgram(nil, "ls", "--remove", "--fabric", name)
	require.Zero(t, text.run(), text.stderr.String())
	assert.Contains(t, text.stdout.String(), "removed "+dead[0]+"\n")
	require.NoFileExists(t, dead[0])
	require.DirExists(t, h.Directory, "a process is there")
	require.NoError(t, f.Close())
	assert.Equal(t, listing{Fabrics: []*fabric.HostView{}, Removed: []string{h.Directory}}, lsJSON(t, "--remove", "--fabric", name))
	require.NoDirExists(t, h.Directory)
}

// The directory that a user names stays, and so do the sockets of those who live.
func TestListOfADirectory(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	f, err := sdp.Open("ring:" + dir + "?node=2&nodes=3")
	require.NoError(t, err)
	r := lsJSON(t, "--remove", "--fabric", "ring:"+dir)
	assert.Empty(t, r.Removed)
	require.Len(t, r.Fabrics, 1)
	assert.Equal(t, "ring:"+dir, r.Fabrics[0].Fabric)
	assert.Equal(t, 2, r.Fabrics[0].Node)
	assert.True(t, r.Fabrics[0].Processes[0].Owner)
	require.NoError(t, f.Close())
	assert.Empty(t, lsJSON(t, "--remove", "--fabric", "ring:"+dir).Removed)
	require.DirExists(t, dir)
}

func TestListOfADirectoryThatCannotBeUsed(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o755))
	p := newProgram(nil, "ls", "--fabric", "shm:"+dir)
	assert.Equal(t, statusFailed, p.run())
	assertOneLine(t, p.stderr.String(), "has mode 0755")
}
