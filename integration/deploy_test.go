//go:build linux

package integration

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// documentedFiles returns the files that a document shows, by path. Each is a block that
// begins with its path.
func documentedFiles(t *testing.T, document string) map[string]string {
	t.Helper()
	text, err := os.ReadFile("../docs/" + document)
	require.NoError(t, err)
	files := map[string]string{}
	for _, m := range regexp.MustCompile("(?ms)^```\\w*\n# (/\\S+)\n(.*?)^```$").FindAllStringSubmatch(string(text), -1) {
		files[m[1]] = m[2]
	}
	return files
}

// inFile returns the fields after the first one, of the line that begins with it.
func inFile(t *testing.T, path, first string) []string {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	for line := range strings.Lines(string(b)) {
		if f := strings.Split(strings.TrimSpace(line), ":"); f[0] == first {
			return f[1:]
		}
	}
	t.Fatalf("%s has no %s", path, first)
	return nil
}

// installation is what an administrator makes of the files of docs/deploy.md, below a root.
type installation struct {
	root  string
	files map[string]string
	group int
}

// unitFabric is the directory of the fabric in those files.
const unitFabric = "/run/ntbnet/shop"

// install has systemd's programs make users and directory.
func install(t *testing.T) *installation {
	t.Helper()
	i := &installation{root: t.TempDir(), files: documentedFiles(t, "deploy.md")}
	for dir := i.root; dir != "/tmp" && dir != "/"; dir = filepath.Dir(dir) { // the users must get through
		require.NoError(t, os.Chmod(dir, 0o755))
	}
	for path, text := range i.files {
		require.NoError(t, os.MkdirAll(filepath.Dir(i.root+path), 0o755))
		text = strings.ReplaceAll(text, "/usr/local/bin", programs)
		require.NoError(t, os.WriteFile(i.root+path, []byte(text), 0o644))
	}
	succeeds(t, "systemd-sysusers", "--root="+i.root)
	succeeds(t, "systemd-tmpfiles", "--root="+i.root, "--create")
	var err error
	i.group, err = strconv.Atoi(inFile(t, i.root+"/etc/group", "shop")[1])
	require.NoError(t, err)
	return i
}

// succeeds runs a program, and returns what it wrote.
func succeeds(t *testing.T, name string, args ...string) string {
	t.Helper()
	p := start(t, tool(t, name), args)
	require.Equal(t, 0, p.status(), "%s: %s", name, p.out.String())
	return p.out.String()
}

// cage returns a cage that is as the units have it, as far as namespaces and filters can be.
func (i *installation) cage(t *testing.T) cage {
	t.Helper()
	all := i.files["/etc/systemd/system/shop-.service.d/fabric.conf"]
	for _, line := range []string{
		"ReadWritePaths=" + unitFabric, "Environment=SDP_FABRIC=shm:" + unitFabric, "SystemCallFilter=@system-service",
		"RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6 AF_NETLINK", "ProtectProc=invisible", "ProcSubset=pid",
	} {
		require.Contains(t, all, line+"\n")
	}
	return cage{
		Namespaces: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET, Root: t.TempDir(),
		Volumes: map[string]string{unitFabric: i.root + unitFabric, "/etc": i.root + "/etc"},
		Proc:    "hidepid=invisible,subset=pid", Groups: []uint32{uint32(i.group)},
		Allowed: callsOf(t, "@system-service"), Families: []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK},
	}
}

// start starts the command of a unit, which is an sdp-proxy, in a cage.
func (i *installation) start(t *testing.T, name string, k cage) *proxy {
	t.Helper()
	unit := i.files["/etc/systemd/system/shop-"+name+".service"]
	require.Contains(t, unit, "User="+name+"\n")
	command := words(regexp.MustCompile(`(?m)^ExecStart=(.*)$`).FindStringSubmatch(unit)[1])
	require.Equal(t, "/usr/local/bin/sdp-proxy", command[0])
	uid, err := strconv.Atoi(inFile(t, i.root+"/etc/passwd", name)[1])
	require.NoError(t, err)
	k.UID = uid
	p := startProxyIn(t, "SDP_FABRIC=shm:"+unitFabric, []option{k.option()}, command[1:])
	p.waitFor(readyLine, 1)
	return p
}

// The files of docs/deploy.md are right for systemd's programs.
func TestUnitsOfTheDocuments(t *testing.T) {
	shop(t) // for its checks
	i := install(t)
	var st unix.Stat_t
	require.NoError(t, unix.Stat(i.root+unitFabric, &st))
	require.Equal(t, []uint32{0o3770, 0, uint32(i.group)}, []uint32{st.Mode & 0o7777, st.Uid, st.Gid})
	require.ElementsMatch(t, []string{"backend", "frontend"}, strings.Split(inFile(t, i.root+"/etc/group", "shop")[2], ","))
	units := i.root + "/etc/systemd/system/"
	require.Empty(t, succeeds(t, "systemd-analyze", "verify", units+"shop-backend.service", units+"shop-frontend.service"))
}

// The commands of the units of docs/deploy.md meet as their users.
func TestCommandsOfTheUnits(t *testing.T) {
	shop(t)
	i := install(t)
	k := i.cage(t).try(t)
	back := i.start(t, "backend", k)
	// All are in one network namespace, which is not that of the machine: its ports are free.
	k.Namespaces &^= syscall.CLONE_NEWNET
	k.Net = fmt.Sprintf("/proc/%d/ns/net", back.cmd.Process.Pid)
	outside := cage{Net: k.Net}.option()
	startRedisWith(t, []option{outside}, "--port", "6379", "--bind", "127.0.0.1", "--dir", t.TempDir())
	front := i.start(t, "frontend", k)
	redisAnswers(t, "127.0.0.1:6380", outside)
	for _, p := range []*proxy{front, back} {
		p.signal(syscall.SIGTERM)
		require.Equal(t, 0, p.status())
	}
}

// The smallest file system in memory is large enough, with the options of docs/deploy.md.
func TestAVolumeInMemory(t *testing.T) {
	dir, exe := shop(t)
	text, err := os.ReadFile("../docs/deploy.md")
	require.NoError(t, err)
	m := regexp.MustCompile(`--opt o=(size=\w+),(mode=3770,gid=)1100 fabric`).FindStringSubmatch(string(text))
	require.NotNil(t, m)
	err = unix.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=64k,%s%d", m[2], shopGID))
	if errors.Is(err, syscall.EPERM) {
		fmt.Printf("WARNING: %s is skipped: mount: %v\n", t.Name(), err)
		t.Skip("mount: ", err)
	}
	require.NoError(t, err)
	defer unix.Unmount(dir, unix.MNT_DETACH)
	target := redisOf(t, userA)
	variable := "SDP_FABRIC=shm:" + dir
	back := startProxyIn(t, variable, []option{as(userA, inShop)}, nil, "sdp://localhost:0="+target)
	front := startProxyIn(t, variable, []option{as(userB, inShop)}, nil, "tcp://127.0.0.1:0=sdp://localhost:"+back.sdpPort())
	redisAnswers(t, strings.TrimPrefix(front.listening[0], "tcp://"), as(userC, nil))
	a, b := startUser(t, exe, "shm:"+dir, userA, inShop), startUser(t, exe, "shm:"+dir, userB, inShop)
	require.Equal(t, "sdp", b.meets("flow sdp %s 8 10000000", a.meets("flows sdp localhost:0").Address).By)
	b.end()
	a.end()
	front.stop()
	back.stop()
}
