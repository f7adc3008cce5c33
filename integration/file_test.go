//go:build linux

package integration

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const fileSize = 16 << 20

// Two containers without a network, a directory or processes in common are neighbours by a file. When it
// shrinks, their connections are reset and the processes live on.
func TestContainersWithAFile(t *testing.T) {
	volume, exe := shop(t)
	file := filepath.Join(volume, "memory")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Truncate(file, fileSize))
	require.NoError(t, os.Chown(file, 0, shopGID))
	require.NoError(t, os.Chmod(file, 0o660))

	node := func(number, uid int, end string) *peer {
		own := filepath.Join(filepath.Dir(exe), fmt.Sprint("node", number))
		require.NoError(t, os.Mkdir(own, 0o700))
		require.NoError(t, os.Chown(own, uid, uid))
		k := container(t, volume, "/volume", uid, inShop)
		k.Namespaces |= syscall.CLONE_NEWNET
		k.Volumes["/own"] = own
		k.try(t)
		p := startPeer(t, "far", []string{fmt.Sprintf("line:/own?node=%d&nodes=2&%s=file:/volume/memory", number, end)},
			func(c *exec.Cmd) { c.Path = exe }, k.option())
		require.Equal(t, "ready", p.readLine())
		return p
	}
	one, two := node(1, userA, "right"), node(2, userB, "left")
	useFile(one, two, file)
}

// useFile has two nodes converse by a file, which shrinks twice meanwhile.
func useFile(one, two *peer, file string) {
	t := one.t
	t.Helper()
	converse(one, two)
	for _, sizes := range [][]int64{{0, fileSize}, {fileSize / 2, fileSize}} {
		does(one, "node 1", "keep node2 1000000")
		does(two, "node 2", "keep node1 1000000")
		for _, size := range sizes {
			require.NoError(t, os.Truncate(file, size))
		}
		for _, p := range []*peer{one, two} {
			require.Contains(t, p.ask("lost"), "connection reset by peer")
		}
		converse(one, two) // while the connections that were reset are open
		does(one, "node 1", "drop")
		does(two, "node 2", "drop")
	}
	endHost(one)
	endHost(two)
}

// Two processes have a file of huge pages in common.
func TestHugePages(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	file := filepath.Join(hugePages(t, fileSize>>20), "memory")
	f, err := os.Create(file)
	require.NoError(t, err)
	require.NoError(t, errors.Join(f.Truncate(fileSize), f.Close()))
	line := "line:" + fabrictest.Name(t)
	one := startPeer(t, "far", []string{line + "?node=1&nodes=2&right=file:" + file})
	two := startPeer(t, "far", []string{line + "?node=2&nodes=2&left=file:" + file})
	require.Equal(t, "ready", one.readLine())
	require.Equal(t, "ready", two.readLine())
	useFile(one, two, file)
}

// hugePages returns the directory of a file system of huge pages, of which n MiB more are free until the test ends.
func hugePages(t *testing.T, n int) string {
	t.Helper()
	const pages = "/proc/sys/vm/nr_hugepages"
	before, err := os.ReadFile(pages)
	require.NoError(t, err)
	had, err := strconv.Atoi(strings.TrimSpace(string(before)))
	require.NoError(t, err)
	skip := func(why any) {
		fmt.Printf("WARNING: %s is skipped: no huge pages: %v\n", t.Name(), why)
		t.Skip("no huge pages: ", why)
	}
	t.Cleanup(func() { _ = os.WriteFile(pages, before, 0o644) }) // where it was written
	want := had + n/2
	if err := os.WriteFile(pages, []byte(strconv.Itoa(want)), 0o644); err != nil {
		skip(err)
	}
	if after, err := os.ReadFile(pages); err != nil || strings.TrimSpace(string(after)) != strconv.Itoa(want) {
		skip(fmt.Sprintf("%s of %d, %v", after, want, err))
	}
	dir := t.TempDir()
	if err := unix.Mount("none", dir, "hugetlbfs", 0, "pagesize=2M"); err != nil {
		skip(err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Unmount(dir, 0)) })
	return dir
}

// An end whose file is missing, or not a memory, says so once, and takes the file as soon as it is right.
func TestAFileThatComesLater(t *testing.T) {
	file := filepath.Join(t.TempDir(), "memory")
	line := "line:" + fabrictest.Name(t)
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	require.NoError(t, err)
	defer log.Close()
	said := func(what string) int {
		text, err := os.ReadFile(log.Name())
		require.NoError(t, err)
		return strings.Count(string(text), what)
	}
	says := func(what string) { until(t, what, func() bool { return said(what) > 0 }) }

	one := startPeer(t, "far", []string{line + "?node=1&nodes=2&right=file:" + file}, func(c *exec.Cmd) { c.Stderr = log })
	require.Equal(t, "ready", one.readLine())
	says("truncate -s 16M " + file)
	require.NoError(t, os.WriteFile(file, []byte("short"), 0o600))
	says("has 5 bytes")
	require.NoError(t, os.Truncate(file, fileSize))
	two := startPeer(t, "far", []string{line + "?node=2&nodes=2&left=file:" + file})
	require.Equal(t, "ready", two.readLine())
	converse(one, two)
	says("the link has come up")
	require.Equal(t, 1, said("truncate -s"))
	two.end()
	endHost(one)
}
