//go:build linux

package integration

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// startCaged is startUser for a process in a cage.
func startCaged(t *testing.T, exe, fabric string, k cage) *peer {
	t.Helper()
	p := startPeer(t, "user", nil, func(c *exec.Cmd) {
		c.Path = exe
		c.Env = append(c.Env, "SDP_FABRIC="+fabric)
	}, k.option())
	require.Equal(t, "ready", p.readLine())
	return p
}

// as runs a program as a user.
func as(uid int, groups []uint32) option {
	return func(c *exec.Cmd) {
		c.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid), Groups: groups}
	}
}

// redisOf starts a Redis server of a user, at a Unix socket that no other user can reach.
func redisOf(t *testing.T, uid int) (target string) {
	t.Helper()
	dir := shortDir(t)
	require.NoError(t, os.Chown(dir, uid, uid))
	socket := filepath.Join(dir, "redis.sock")
	startRedisWith(t, []option{as(uid, nil)}, "--port", "0", "--unixsocket", socket, "--dir", dir)
	return "unix://" + socket
}

// startRedisWith starts a server without persistence.
func startRedisWith(t *testing.T, options []option, args ...string) {
	t.Helper()
	args = append(args, "--save", "", "--appendonly", "no", "--daemonize", "no")
	start(t, tool(t, "redis-server"), args, options...).waitFor(regexp.MustCompile(`(?i)ready to accept connections`), 1)
}

// redisAnswers uses a Redis server, by clients that the option changes.
func redisAnswers(t *testing.T, address string, o option) {
	t.Helper()
	host, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	run := func(name string, args ...string) string {
		t.Helper()
		p := start(t, tool(t, name), append([]string{"-h", host, "-p", port}, args...), o)
		require.Equal(t, 0, p.status(), "%s %q: %s", name, args, p.out.String())
		return p.out.String()
	}
	for _, c := range [][2]string{{"PING", "PONG"}, {"SET key value", "OK"}, {"GET key", "value"}} {
		require.Equal(t, c[1], strings.TrimSpace(run("redis-cli", words(c[0])...)))
	}
	out := run("redis-benchmark", "-t", "set,get", "-n", "2000", "-c", "20", "-d", "1000", "-q")
	require.Regexp(t, `SET: [0-9.]+ requests per second`, out)
	require.Regexp(t, `GET: [0-9.]+ requests per second`, out)
	require.NotRegexp(t, `(?i)err|could not|reset|closed`, out)
}

// sdpPort returns the port of a proxy's first map, which listens on sdp://.
func (p *proxy) sdpPort() string {
	p.t.Helper()
	_, port := split(p.t, p.listening[0], "sdp://")
	return port
}

// Redis and a proxy are of one user, another proxy is of another one. They meet if both are of
// the group. If not, the client gets no answer, and the log says why.
func TestRedisOfAnotherUser(t *testing.T) {
	dir, _ := shop(t)
	variable := "SDP_FABRIC=shm:" + dir
	target := redisOf(t, userA)
	back := startProxyIn(t, variable, []option{as(userA, inShop)}, nil, "sdp://localhost:0="+target)
	some := startProxyIn(t, variable, []option{as(userA, inShop)}, []string{"--allow-user", strconv.Itoa(userC)}, "sdp://localhost:0="+target)
	to := "=sdp://localhost:"
	front := startProxyIn(t, variable, []option{as(userB, inShop)}, nil,
		"tcp://127.0.0.1:0"+to+back.sdpPort(), "tcp://127.0.0.1:0"+to+some.sdpPort())
	redisAnswers(t, strings.TrimPrefix(front.listening[0], "tcp://"), as(userC, nil))

	// The second proxy serves another user only.
	_, err := front.dial(1).Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	front.waitFor(regexp.MustCompile(fmt.Sprintf(`this process is uid %d, .*: permission denied`, userB)), 1)
	some.waitFor(regexp.MustCompile(fmt.Sprintf(`refuses a connection of pid %d, uid %d`, front.cmd.Process.Pid, userB)), 1)

	// The proxy of a user without the group does not start.
	refused(t, fmt.Sprintf("belongs to group %d, of which %d is not a member: usermod -a -G %[1]d %[2]d, and begin a new session: permission denied", shopGID, userC),
		[]string{"--map", "tcp://127.0.0.1:0" + to + back.sdpPort()}, withEnv(variable), as(userC, []uint32{7}))
	for _, p := range []*proxy{front, some, back} {
		p.stop()
	}
	// Marks of ports that are handed over stay, until a later process deletes them.
	names := slices.DeleteFunc(dirNames(t, dir), func(name string) bool { return strings.HasPrefix(name, "handover-") })
	require.Equal(t, []string{claimFile}, names)
}

// A server of HTTP and its client are of two users.
func TestHTTPOfAnotherUser(t *testing.T) {
	dir, exe := shop(t)
	a, b := startUser(t, exe, "shm:"+dir, userA, inShop), startUser(t, exe, "shm:"+dir, userB, inShop)
	c := startUser(t, exe, "shm:"+dir, userC, []uint32{7})
	for _, network := range []string{"sdp", "tcp"} {
		address := a.meets("http %s 127.0.0.1:0", network).Address
		require.Equal(t, "sdp", b.meets("get %s %s 2 1000000", network, address).By)
		require.Equal(t, "sdp", b.meets("get %s %s 200 10", network, address).By)
		if network == "sdp" {
			m := c.misses("get sdp %s 1 10", address)
			m.denied(t)
			require.Contains(t, m.Error, fmt.Sprintf("belongs to group %d, of which %d is not a member", shopGID, userC))
		}
	}
	for _, p := range []*peer{a, b, c} {
		p.end()
	}
}

// Two network namespaces have one directory. Both use port 6379 of their loopback: Redis in one,
// and the proxy that leads to it in the other.
func TestRedisInAnotherNetworkNamespace(t *testing.T) {
	dir, exe := shop(t)
	net := cage{UID: userA, Groups: inShop, Namespaces: syscall.CLONE_NEWNET}.try(t)
	variable := "SDP_FABRIC=shm:" + dir
	back := startProxyIn(t, variable, []option{net.option()}, nil, "sdp://localhost:0=tcp://127.0.0.1:6379")
	within := func(p *proxy, uid int) option {
		return cage{UID: uid, Net: fmt.Sprintf("/proc/%d/ns/net", p.cmd.Process.Pid)}.option()
	}
	data := shortDir(t)
	require.NoError(t, os.Chown(data, userA, userA))
	startRedisWith(t, []option{within(back, userA)}, "--bind", "127.0.0.1", "--port", "6379", "--dir", data)
	net.UID = userB
	front := startProxyIn(t, variable, []option{net.option()}, nil, "tcp://127.0.0.1:6379=sdp://localhost:"+back.sdpPort())
	redisAnswers(t, "127.0.0.1:6379", within(front, userC))

	// A server of HTTP, by network sdp.
	server := startCaged(t, exe, "shm:"+dir, net)
	net.UID = userC
	client := startCaged(t, exe, "shm:"+dir, net)
	address := server.meets("http sdp localhost:0").Address
	require.Equal(t, "sdp", client.meets("get sdp %s 2 1000000", address).By)
	client.end()
	server.end()
	front.stop()
	back.stop()
}

// container returns a cage for a container of a pod: a root that cannot be written, without
// /tmp, processes of its own, and a volume.
func container(t *testing.T, volume, at string, uid int, groups []uint32) cage {
	t.Helper()
	return cage{
		UID: uid, Groups: groups, Namespaces: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
		Root: t.TempDir(), Volumes: map[string]string{at: volume},
	}
}

// Two processes have a root that cannot be written, without /tmp, and a common directory, which
// has a path of its own in each.
func TestARootThatCannotBeWritten(t *testing.T) {
	dir, exe := shop(t)
	one := container(t, dir, "/one", userA, inShop).try(t)
	a := startCaged(t, exe, "shm:/one", one)
	b := startCaged(t, exe, "shm:/two", container(t, dir, "/two", userB, inShop))
	for _, network := range []string{"sdp", "tcp"} {
		address := a.meets("http %s 127.0.0.1:0", network).Address
		require.Equal(t, "sdp", b.meets("get %s %s 2 1000000", network, address).By)
	}
	address := b.meets("listen sdp localhost:0 b").Address
	require.Equal(t, "b", a.meets("dial sdp %s", address).Name)
	a.end()
	b.end()

	// Without a directory there is no place to meet, and the error says which one is missing.
	c := startCaged(t, exe, "shm:default", one)
	for _, call := range []string{"listen sdp localhost:0 c", "dial sdp localhost:1"} {
		m := c.misses("%s", call)
		require.Contains(t, m.Error, fmt.Sprintf("/tmp/ntbnet-%d", userA))
	}
	c.end()
	require.Equal(t, []string{claimFile}, dirNames(t, dir))
}

// Two containers of a pod have a volume that belongs to the group of the pod, as an emptyDir
// with fsGroup does: it has mode 2777, so it is no fabric itself.
func TestContainersOfAPod(t *testing.T) {
	dir, exe := shop(t)
	volume := filepath.Join(filepath.Dir(dir), "volume")
	require.NoError(t, os.Mkdir(volume, 0o700))
	require.NoError(t, os.Chmod(volume, 0o777))
	own := func() { // as the kubelet does for fsGroup, also when it is restarted
		t.Helper()
		require.NoError(t, filepath.WalkDir(volume, func(path string, _ fs.DirEntry, err error) error {
			require.NoError(t, err)
			info, err := os.Lstat(path)
			require.NoError(t, err)
			require.NoError(t, os.Lchown(path, -1, shopGID))
			mode := info.Mode() | 0o660
			if info.IsDir() {
				mode |= fs.ModeSetgid | 0o110
			}
			return os.Chmod(path, mode)
		}))
	}
	own()
	group := []uint32{shopGID}
	one := container(t, volume, "/vol", userA, group).try(t)
	two := container(t, volume, "/vol", userB, group)

	c := startCaged(t, exe, "shm:/vol", one)
	m := c.misses("listen sdp localhost:0 c")
	m.denied(t)
	require.Contains(t, m.Error, "/vol has mode 2777, want 3770 for a group")
	c.end()

	fabric := fmt.Sprintf("shm:/vol/shop?group=%d&owner=%d,%d", shopGID, userA, userB)
	a, b := startCaged(t, exe, fabric, one), startCaged(t, exe, fabric, two)
	for _, network := range []string{"sdp", "tcp"} { // they have one network namespace
		address := a.meets("http %s localhost:0", network).Address
		require.Equal(t, "sdp", b.meets("get %s %s 2 1000000", network, address).By)
	}
	m = b.meets("dial sdp %s", a.meets("listen sdp localhost:0 a").Address)
	require.Equal(t, []int{0, userA}, []int{m.Peer.PID, m.Peer.UID})
	var st unix.Stat_t
	require.NoError(t, unix.Stat(volume+"/shop", &st))
	require.Equal(t, []uint32{0o3770, userA, shopGID}, []uint32{st.Mode & 0o7777, st.Uid, st.Gid})
	b.end()
	own()
	address := a.meets("listen sdp localhost:0 a").Address
	b = startCaged(t, exe, fabric, two)
	require.Equal(t, "a", b.meets("dial sdp %s", address).Name)
	b.end()
	a.in.Close()
	a.wait()
	require.Contains(t, a.stderr.String(), "a stranger can hide the fabric")
}

// Where membarrier is forbidden, or unknown, to one side or to both, no wait is forgotten. With
// spin=0 each wait sleeps.
func TestWithoutMembarrier(t *testing.T) {
	dir, exe := shop(t)
	fabric := "shm:" + dir + "?spin=0"
	with := cage{UID: userA, Groups: inShop}
	for _, c := range []struct {
		name        string
		errno       syscall.Errno
		here, there bool // who has none
	}{
		{"unknown to both", syscall.ENOSYS, true, true},
		{"forbidden to the server", syscall.EPERM, false, true},
		{"forbidden to the client", syscall.EPERM, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			without := with
			without.Denied, without.Errno = []uintptr{unix.SYS_MEMBARRIER}, c.errno
			without.try(t)
			client, server := with, with
			if c.here {
				client = without
			}
			if c.there {
				server = without
			}
			b, a := startCaged(t, exe, fabric, client), startCaged(t, exe, fabric, server)
			address := a.meets("http sdp localhost:0").Address
			require.Equal(t, "sdp", b.meets("get sdp %s 2000 10", address).By)
			require.Equal(t, "sdp", b.meets("flow sdp %s 4 1000000", a.meets("flows sdp localhost:0").Address).By)
			a.end()
			b.end()
		})
	}
	t.Run("SHMEM", func(t *testing.T) {
		without := cage{Denied: []uintptr{unix.SYS_MEMBARRIER}, Errno: syscall.EPERM}.try(t)
		p := start(t, filepath.Join(programs, "sdp-perf"), []string{"shmem", "-t", "0.1", "-P", "4"}, without.option())
		require.Equal(t, 0, p.status(), "%s", p.out.String())
		require.Contains(t, p.out.String(), "# barrier")
	})
}

// Each process may use 48 MiB of memory. Connections go on, as many as there is memory for. When
// the kernel kills a process that takes more, the other one gets ECONNRESET.
func TestLittleMemory(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector takes more")
	}
	const limit = 48 << 20
	dir, exe := shop(t)
	caged := func(uid int) cage { return cage{UID: uid, Groups: inShop, Group: newMemoryGroup(t, limit).dir} }
	one, two := caged(userA).try(t), caged(userB)
	a, b := startCaged(t, exe, "shm:"+dir, one), startCaged(t, exe, "shm:"+dir, two)
	require.True(t, inGroup(t, one.Group, a.cmd.Process.Pid))
	require.True(t, inGroup(t, two.Group, b.cmd.Process.Pid))
	address := a.meets("flows sdp localhost:0").Address
	require.Equal(t, "sdp", b.meets("flow sdp %s 1 %d", address, long(256<<20, 64<<20)).By)
	require.Equal(t, "sdp", b.meets("flow sdp %s 8 %d", address, long(32<<20, 8<<20)).By)
	require.Equal(t, "sdp", b.meets("get sdp %s 2 %d", a.meets("http sdp localhost:0").Address, 64<<20).By)

	// 64 connections that are busy at the same time would take more, with buffers of the usual size.
	small := fmt.Sprintf("shm:%s?buffer=65536", dir)
	three, four := caged(userA), caged(userB)
	c, d := startCaged(t, exe, small, three), startCaged(t, exe, small, four)
	require.Equal(t, "sdp", d.meets("flow sdp %s 64 %d", c.meets("flows sdp localhost:0").Address, long(4<<20, 1<<20)).By)
	d.end()
	c.end()

	idle := a.meets("http sdp localhost:0").Address
	_, err := fmt.Fprintf(b.in, "hold sdp %s\n", idle)
	require.NoError(t, err)
	fmt.Fprintf(a.in, "eat %d\n", 2*limit)
	a.wait()
	require.Equal(t, syscall.SIGKILL, a.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	line := b.readLine()
	require.Contains(t, line, `"Reset":true`)
	b.end()
}
