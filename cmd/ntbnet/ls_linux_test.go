package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
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
	_, err = c.Write([]byte("hello"))
	require.NoError(t, err)
	_, err = io.ReadFull(c, make([]byte, 5))
	require.NoError(t, err)
	ln, err := f.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	port := ln.Addr().(*net.TCPAddr).Port

	var r listing
	eventually(t, "both have the connection", func() bool {
		r = lsJSON(t, "--fabric", name)
		p := r.Fabrics[0].Processes
		return len(p) == 2 && len(p[0].Connections) == 1 && len(p[1].Connections) == 1
	})
	require.Len(t, r.Fabrics, 1)
	h := r.Fabrics[0]
	assert.Equal(t, name, h.Fabric)
	assert.Empty(t, h.Dead)
	for i, want := range []struct {
		pid, other int
		ports      []string
	}{
		{os.Getpid(), 2, []string{fmt.Sprintf("sdp:%d", port), fmt.Sprintf("tcp:%d", port)}},
		{srv.Process.Pid, 1, []string{"sdp:7007"}},
	} {
		p := h.Processes[i]
		assert.Equal(t, i+1, p.Process)
		assert.Equal(t, []int{want.pid, os.Geteuid(), os.Getegid()}, []int{p.PID, p.UID, p.GID})
		assert.Equal(t, want.ports, p.Ports)
		assert.Equal(t, "shm", p.Topology)
		require.Len(t, p.Connections, 1)
		o := p.Connections[0]
		assert.Equal(t, []int{1, want.other, 1}, []int{o.Node, o.Process, o.Count})
		assert.Equal(t, []uint64{5, 5}, []uint64{o.Read, o.Inline + o.MMIO + o.DMA})
	}
	assert.Equal(t, "localhost:7007", h.Processes[1].Connections[0].Local)
	assert.Equal(t, "localhost:7007", h.Processes[0].Connections[0].Remote)
	text := newProgram(nil, "ls", "--fabric", name)
	require.Zero(t, text.run(), text.stderr.String())
	assert.Regexp(t, fmt.Sprintf(`(?m)^%s in %s$`, name, h.Directory), text.stdout.String())
	assert.Regexp(t, fmt.Sprintf(`(?m)^  2 +%d +\S+ \(uid %d\) +sdp :7007 +1 with process 1$`, srv.Process.Pid, os.Geteuid()), text.stdout.String())

	// A process that is stopped does not answer.
	require.NoError(t, srv.Process.Signal(syscall.SIGSTOP))
	p := h.Processes[1]
	eventually(t, "all its threads have stopped", func() bool {
		p = lsJSON(t, "--fabric", name).Fabrics[0].Processes[1]
		return p.Error != ""
	})
	assert.Equal(t, srv.Process.Pid, p.PID)
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
	assert.Equal(t, listing{Fabrics: []*status.Directory{}, Removed: []string{h.Directory}}, lsJSON(t, "--remove", "--fabric", name))
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
