//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// nobody is the user of programs that refuse to run as root.
const nobody = 65534

func TestPostgreSQL(t *testing.T) {
	all, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(all) == 0 {
		all = []string{filepath.Dir(tool(t, "postgres"))}
	}
	dir, err := os.MkdirTemp("", "pg")
	require.NoError(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	r := newRunner(t)
	r.log, r.dir = filepath.Join(dir, "log"), dir
	if os.Getuid() == 0 {
		r.user = &syscall.Credential{Uid: nobody, Gid: nobody}
		require.NoError(t, os.Chown(dir, nobody, nobody))
		require.NoError(t, os.Chmod(installed(t), 0o755))
	}
	program := func(name string) string { return filepath.Join(all[0], name) }
	r.run(program("initdb"), "-D", dir+"/data", "-A", "trust", "-U", "postgres", "--no-locale", "-N")
	at, port := freePort(t)
	r.serve(at, program("postgres"), "-D", dir+"/data", "-k", dir, "-h", "127.0.0.1", "-p", port, "-F")
	server := []string{"-h", "127.0.0.1", "-p", port, "-U", "postgres"}
	r.run("pgbench", append(server, "-i", "-q", "postgres")...)
	for _, more := range [][]string{{"-c", "4", "-t", "100"}, {"-C", "-t", "20"}, {"-S", "-c", "8", "-j", "2", "-t", "200"}} {
		assert.Contains(t, r.run("pgbench", append(append(server, more...), "postgres")...), "number of failed transactions: 0 ")
	}
	// A result and a statement that SDP would carry, with both ends and one.
	for range 2 {
		out := r.run("psql", append(server, "-Atq", "-c", "select sum(length(s)) from (select repeat('x', n) s from generate_series(1, 2000) n) t", "postgres")...)
		assert.Equal(t, "2001000\n", out)
	}
	out := run(t, nil, tool(t, "psql"), append(server, "-Atq", "-c", "select length(repeat('x', 1000000))", "postgres")...)
	assert.Equal(t, "1000000\n", out)
	assert.Len(t, r.run("psql", append(server, "-Atq", "-c", "select repeat('x', 1000000)", "postgres")...), 1000001)
	assert.NotContains(t, r.said(), "none of sdp-run's")
}

func TestSSH(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("sshd logs in other users, for which it wants root")
	}
	r := newRunner(t)
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	at, port := freePort(t)
	require.NoError(t, os.MkdirAll("/run/sshd", 0o755))
	for _, key := range []string{"host", "user"} {
		run(t, nil, tool(t, "ssh-keygen"), "-q", "-t", "ed25519", "-N", "", "-f", path(key))
	}
	require.NoError(t, os.WriteFile(path("conf"), fmt.Appendf(nil,
		"Port %s\nListenAddress 127.0.0.1\nHostKey %s\nAuthorizedKeysFile %s\nPermitRootLogin yes\nUsePAM no\nStrictModes no\nPidFile none\nSubsystem sftp internal-sftp\n",
		port, path("host"), path("user.pub")), 0o600))
	r.serve(at, "sshd", "-D", "-e", "-f", path("conf"))
	with := []string{"-F", "none", "-i", path("user"), "-o", "BatchMode=yes", "-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null", "-o", "LogLevel=ERROR"}
	want := stream(10_000_000)
	require.NoError(t, os.WriteFile(path("sent"), want, 0o600))
	for range 2 {
		assert.Equal(t, "hello\n", r.run("ssh", append(with, "-p", port, "root@127.0.0.1", "echo hello")...))
		r.run("scp", append(with, "-P", port, path("sent"), "root@127.0.0.1:"+path("arrived"))...)
		got, err := os.ReadFile(path("arrived"))
		require.NoError(t, err)
		assert.True(t, bytes.Equal(want, got))
	}
	assert.NotContains(t, r.said(), "none of sdp-run's")
}

// otherLibrary builds the library of another version, and returns its directory.
func otherLibrary(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.Symlink(filepath.Join(installed(t), "lib/libsdp.so"), filepath.Join(dir, "libsdp.so")))
	files, err := filepath.Glob("../../cmd/sdp-run/preload/*.c")
	require.NoError(t, err)
	run(t, nil, tool(t, "gcc"), append([]string{"-DMAGIC=1ull", "-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-shared", "-o", filepath.Join(dir, "libsdp-run.so")}, files...)...)
	return dir
}

func TestLibrariesOfTwoVersionsStayTCP(t *testing.T) {
	old := newRunner(t)
	old.more = []string{"--smallest", "1", "--library", otherLibrary(t)}
	fresh := &runner{t: t, path: old.path, log: old.log, env: old.env, more: []string{"--smallest", "1"}}
	for _, server := range []*runner{old, fresh} {
		client := fresh
		if server == fresh {
			client = old
		}
		at, port := freePort(t)
		server.serve(at, "python3", "-c", talker, "accept", port, "300000")
		assert.Equal(t, "same\n", client.run("python3", "-c", talker, "connect", port, "300000"))
	}
	assert.NotContains(t, old.said(), "goes by SDP")
	assert.Contains(t, old.said(), "the other end has another version")
}

// crowd has n connections, which are all there before the first one ends.
const crowd = `
import socket, sys, threading
n, size = int(sys.argv[3]), 300000
def exactly(c, n):
    while n:
        b = c.recv(min(n, 65536))
        if not b: sys.exit("%d bytes are missing" % n)
        n -= len(b)
if sys.argv[1] == "connect":
    cs = [socket.create_connection(("127.0.0.1", int(sys.argv[2]))) for i in range(n)]
    for bytes in (20000, 20000, 20000, size):
        for c in cs: c.sendall(b"x" * bytes); exactly(c, bytes)
    print("all", flush=True)
else:
    def talk(c):
        for bytes in (20000, 20000, 20000, size): exactly(c, bytes); c.sendall(b"y" * bytes)
    s = socket.socket(); s.bind(("127.0.0.1", int(sys.argv[2]))); s.listen(1000)
    while True: threading.Thread(target=talk, args=(s.accept()[0],)).start()
`

func TestAFullFabricLeavesConnectionsToTCP(t *testing.T) {
	r := newRunner(t)
	r.env = append(r.env, "SDP_FABRIC=shm:"+fabrictest.Name(t)+"?window=131072")
	at, port := freePort(t)
	r.serve(at, "python3", "-c", crowd, "accept", port, "0")
	assert.Equal(t, "all\n", r.run("python3", "-c", crowd, "connect", port, "200"))
	assert.Contains(t, r.said(), "goes by SDP")
	assert.Contains(t, r.said(), "no buffer space available")
	assert.NotContains(t, r.said(), "none of sdp-run's")
}

// Go's runtime ends a program that has too little address space for it.
func TestALimitedAddressSpaceLeavesConnectionsToTCP(t *testing.T) {
	r := newRunner(t)
	r.more = []string{"--smallest", "1"}
	at, port := freePort(t)
	r.serve(at, "python3", "-c", talker, "accept", port, "300000")
	assert.Equal(t, "same\n", r.run("prlimit", "--as=500000000", tool(t, "python3"), "-c", talker, "connect", port, "300000"))
	assert.Contains(t, r.said(), "connections stay TCP: the address space is limited")
}
