//go:build linux

package integration

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// memoryGroup is a cgroup that counts the memory of its processes.
type memoryGroup struct {
	t   *testing.T
	dir string
	v1  bool
}

// newMemoryGroup makes a cgroup below that of this process, with a limit if that is not 0. The
// test is skipped, with a warning, where that is not allowed.
func newMemoryGroup(t *testing.T, limit int) *memoryGroup {
	t.Helper()
	g, err := makeMemoryGroup()
	if err == nil {
		t.Cleanup(func() { // the processes end before
			until(t, "the cgroup is removed", func() bool { return os.Remove(g.dir) == nil || errors.Is(os.Remove(g.dir), os.ErrNotExist) })
		})
		if limit > 0 {
			err = g.limit(limit)
		}
	}
	if err != nil {
		fmt.Printf("WARNING: %s is skipped: no memory cgroup can be made: %v\n", t.Name(), err)
		t.Skip("no memory cgroup: ", err)
	}
	g.t = t
	return g
}

// limit limits the memory of the group's processes, in bytes. They get no swap space.
func (g *memoryGroup) limit(bytes int) error {
	memory, swap, swapped := "memory.max", "memory.swap.max", 0
	if g.v1 {
		memory, swap, swapped = "memory.limit_in_bytes", "memory.memsw.limit_in_bytes", bytes
	}
	if err := os.WriteFile(filepath.Join(g.dir, memory), []byte(strconv.Itoa(bytes)), 0); err != nil {
		return err
	}
	// The kernel may have no swap space to limit.
	if f, err := os.OpenFile(filepath.Join(g.dir, swap), os.O_WRONLY, 0); err == nil {
		_, err = f.WriteString(strconv.Itoa(swapped))
		return errors.Join(err, f.Close())
	}
	return nil
}

func makeMemoryGroup() (*memoryGroup, error) {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, err
	}
	err = errors.New("there is none")
	for s := bufio.NewScanner(bytes.NewReader(own)); s.Scan(); {
		f := strings.SplitN(s.Text(), ":", 3)
		g := &memoryGroup{dir: filepath.Join("/sys/fs/cgroup", f[2]), v1: f[1] == "memory"}
		if g.v1 {
			g.dir = filepath.Join("/sys/fs/cgroup/memory", f[2])
		} else if f[0] != "0" {
			continue
		}
		if g.dir, err = os.MkdirTemp(g.dir, "ntbnet-"); err != nil {
			continue
		}
		if _, err = os.Stat(filepath.Join(g.dir, "memory.stat")); err == nil {
			return g, nil
		}
		_ = os.Remove(g.dir)
	}
	return nil, err
}

// number returns a number that a file of the group has behind a word.
func (g *memoryGroup) number(file, word string) int {
	g.t.Helper()
	b, err := os.ReadFile(filepath.Join(g.dir, file))
	require.NoError(g.t, err)
	for s := bufio.NewScanner(bytes.NewReader(b)); s.Scan(); {
		if digits, ok := strings.CutPrefix(s.Text(), word+" "); ok {
			n, err := strconv.Atoi(digits)
			require.NoError(g.t, err)
			return n
		}
	}
	g.t.Fatalf("%s has no %q:\n%s", file, word, b)
	return 0
}

// shared returns how many KiB of shared memory the group is charged for.
func (g *memoryGroup) shared() int { return g.number("memory.stat", "shmem") >> 10 }

// oomKills returns how many processes of the group were killed for lack of memory.
func (g *memoryGroup) oomKills() int {
	if g.v1 {
		return g.number("memory.oom_control", "oom_kill")
	}
	return g.number("memory.events", "oom_kill")
}
