//go:build linux

package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// fabricFile is where root says which fabric all programs of a machine use.
const fabricFile = "/etc/ntbnet/fabric"

// machine is a mount namespace with an /etc of its own. Its nodes are of a directory that all machines have.
type machine struct {
	t    *testing.T
	etc  string
	cage cage
	exe  string
}

func newMachine(t *testing.T, dir, exe string, node int, lines ...string) *machine {
	m := &machine{t: t, etc: filepath.Join(filepath.Dir(exe), fmt.Sprint("etc", node)), exe: exe}
	m.cage = container(t, dir, "/run/ntbnet/lab", userA, inShop)
	m.cage.Volumes["/etc"] = m.etc
	m.says(0o644, append([]string{"# the lab", "fabric line:/run/ntbnet/lab", fmt.Sprint("node ", node), "nodes 2"}, lines...)...)
	m.cage.try(t)
	return m
}

// says writes the machine's file.
func (m *machine) says(mode os.FileMode, lines ...string) {
	path := m.etc + strings.TrimPrefix(fabricFile, "/etc")
	for dir := filepath.Dir(path); dir != filepath.Dir(m.etc); dir = filepath.Dir(dir) {
		require.NoError(m.t, os.MkdirAll(dir, 0o755))
		require.NoError(m.t, os.Chmod(dir, 0o755))
	}
	require.NoError(m.t, os.WriteFile(path, []byte(strings.Join(lines, "\n")+"\n"), 0o644))
	require.NoError(m.t, os.Chmod(path, mode))
}

// within has a program run on the machine as a user, and use its file unless env has the variable.
func (m *machine) within(uid int, env ...string) func(*exec.Cmd) {
	k := m.cage
	k.UID = uid
	return func(c *exec.Cmd) {
		c.Env = append(slices.DeleteFunc(c.Environ(), func(v string) bool { return strings.HasPrefix(v, "SDP_FABRIC=") }), env...)
		k.option()(c)
	}
}

// process starts a process of a user.
func (m *machine) process(uid int, env ...string) *peer {
	m.t.Helper()
	p := startPeer(m.t, "user", nil, func(c *exec.Cmd) { c.Path = m.exe }, m.within(uid, env...))
	require.Equal(m.t, "ready", p.readLine())
	return p
}

// doctor returns what ntbnet doctor prints.
func (m *machine) doctor(status int, env ...string) string {
	m.t.Helper()
	p := start(m.t, filepath.Join(programs, "ntbnet"), []string{"doctor"}, m.within(userA, env...))
	require.Equal(m.t, status, p.status(), p.out.String())
	return p.out.String()
}

// Two machines have a file each. All processes are of its fabric: the first of a machine owns the links, and others
// take them over.
func TestProcessesOfAFabricFile(t *testing.T) {
	dir, exe := shop(t)
	one := newMachine(t, dir, exe, 1, "host1 storage1", "host2 storage2")
	two := newMachine(t, dir, exe, 2, "host1 storage1", "host2 storage2")
	a, b, c := one.process(userA), one.process(userB), two.process(userA)
	port := func(p *peer, name string) string {
		_, port, _ := strings.Cut(p.meets("listen sdp localhost:0 %s", name).Address, ":")
		return port
	}
	ofA, ofB, ofC := port(a, "a"), port(b, "b"), port(c, "c")
	require.Equal(t, "a", c.meets("dial sdp storage1:%s", ofA).Name)
	require.Equal(t, "b", c.meets("dial sdp storage1:%s", ofB).Name)
	require.Equal(t, "c", a.meets("dial sdp storage2:%s", ofC).Name)
	require.Equal(t, "c", b.meets("dial sdp node2:%s", ofC).Name)
	found := one.doctor(0)
	require.Contains(t, found, "line:/run/ntbnet/lab?node=1&nodes=2&host1=storage1&host2=storage2&share=1, by "+fabricFile+": ")
	require.Contains(t, found, "owns the links of node 1, and other processes share them")
	a.end()
	require.Equal(t, "c", b.meets("dial sdp storage2:%s", ofC).Name)
	require.Equal(t, "b", c.meets("dial sdp storage1:%s", ofB).Name)
	b.end()
	c.end()
}

// What is wrong with a file is an error of every call, on network tcp too, and of the doctor. The variable wins, whatever
// is in the file.
func TestAWrongFabricFile(t *testing.T) {
	dir, exe := shop(t)
	m := newMachine(t, dir, exe, 1)
	for want, says := range map[string]func(){
		fabricFile + ":2:7: nodes: want a number from 2 to 16":      func() { m.says(0o644, "fabric line:/run/ntbnet/lab", "nodes 99") },
		fabricFile + " has mode 0664, so that others":               func() { m.says(0o664, "fabric line:/run/ntbnet/lab") },
		fabricFile + " cannot be read: chmod 755 its directory and": func() { m.says(0o600, "fabric line:/run/ntbnet/lab") },
	} {
		says()
		p := m.process(userA)
		for _, call := range []string{"listen tcp localhost:0 a", "listen sdp localhost:0 a", "dial tcp localhost:1", "dial sdp localhost:1"} {
			require.Contains(t, p.misses("%s", call).Error, want, call)
		}
		p.end()
		require.Regexp(t, "error +fabric +none, by "+fabricFile+"\n +-> "+strings.ReplaceAll(want, ".", `\.`), m.doctor(1))
		variable := "SDP_FABRIC=shm:/run/ntbnet/lab"
		p = m.process(userA, variable)
		p.meets("listen sdp localhost:0 a")
		require.Contains(t, m.doctor(0, variable), "shm:/run/ntbnet/lab, by SDP_FABRIC: ")
		p.end()
	}
}
