//go:build linux && (amd64 || arm64)

package integration

import (
	"context"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/ntbnet/ntbnet/shmem"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func init() {
	roles["dumper"] = playDumper
	roles["dumped"] = playDumped
	roles["dumped PE"] = playDumpedPE
}

// mostCore is how large a core dump may be, beside a PE's own heap.
const mostCore = 64 << 20

// dumps has this process leave a core dump in a directory when it is aborted.
func dumps(dir string) error {
	if err := os.Chdir(dir); err != nil {
		return err
	}
	return unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY})
}

// playDumper serves echo, and leaves a core dump.
func playDumper(p *self) error {
	if err := dumps(p.args[0]); err != nil {
		return err
	}
	ln, err := sdp.Listen("sdp", "localhost:0")
	if err != nil {
		return err
	}
	defer ln.Close()
	p.printf("%s", ln.Addr())
	for {
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			buf := make([]byte, 64<<10)
			for {
				n, err := c.Read(buf)
				if err != nil {
					return
				}
				c.Write(buf[:n])
			}
		}()
	}
}

// playDumped has a connection to the dumper, and says what ends it.
func playDumped(p *self) error {
	c, err := sdp.Dial("sdp", p.args[0])
	if err != nil {
		return err
	}
	defer c.Close()
	buf := make([]byte, 32<<10)
	for range 64 {
		if _, err := c.Write(buf); err != nil {
			return err
		}
		for got := 0; got < len(buf); {
			n, err := c.Read(buf)
			if err != nil {
				return err
			}
			got += n
		}
	}
	p.printf("ready")
	_, err = c.Read(buf)
	p.printf("%v after %d", err, time.Now().UnixNano())
	p.stay()
	return nil
}

// playDumpedPE is a PE. It fills an object of its heap, and says where that is. PE 0 leaves a core dump, and the others
// say what they hear of it.
func playDumpedPE(p *self) error {
	pe, _ := strconv.Atoi(p.args[1])
	if err := dumps(p.args[0]); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	w, err := shmem.Open(ctx, shmem.PE(pe, 3, p.args[2]), shmem.HeapLimit(256<<20))
	if err != nil {
		return err
	}
	s, err := shmem.Alloc[byte](ctx, w, 1<<20)
	if err != nil {
		return err
	}
	for i := range s.Local() {
		s.Local()[i] = dumpedByte(i)
	}
	for other := range 3 { // so that all pages of all heaps are mapped here
		shmem.Get(w.Ctx(), make([]byte, 1<<20), s, other)
	}
	if err := w.Team().Barrier(ctx); err != nil {
		return err
	}
	p.printf("%d", uintptr(unsafe.Pointer(&s.Local()[0])))
	if pe > 0 { // until PE 0 has ended
		p.printf("%v", w.Team().Barrier(context.Background()))
	}
	p.stay()
	return nil
}

func dumpedByte(i int) byte { return byte(i*7 + i>>8) }

// abort has a process leave its core dump, and returns that file and when it was asked for.
func abort(t *testing.T, p *peer, dir string) (core string, asked time.Time) {
	t.Helper()
	asked = time.Now()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGABRT))
	p.wait()
	require.True(t, p.cmd.ProcessState.Sys().(syscall.WaitStatus).CoreDump(), "%v: %s", p.cmd.ProcessState, &p.stderr)
	all, err := filepath.Glob(filepath.Join(dir, "core*"))
	require.NoError(t, err)
	require.Len(t, all, 1)
	return all[0], asked
}

// onDisk returns how many bytes of a file are written, and no holes.
func onDisk(t *testing.T, name string) int64 {
	t.Helper()
	var st unix.Stat_t
	require.NoError(t, unix.Stat(name, &st))
	return st.Blocks * 512
}

// wantCores skips a test where core dumps are not files of the process's directory.
func wantCores(t *testing.T) {
	t.Helper()
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil || strings.ContainsAny(string(pattern), "|/") {
		t.Skipf("WARNING: core dumps go elsewhere: %s, %v", pattern, err)
	}
}

// crashing has the environment in which a Go program that is aborted leaves a core dump.
func crashing(c *exec.Cmd) { c.Env = append(c.Env, "GOTRACEBACK=crash") }

// A core dump has no windows, of however many links. Others learn of the crash.
func TestACoreDumpIsSmall(t *testing.T) {
	wantCores(t)
	for _, links := range []int{1, 10} {
		t.Run(fmt.Sprintf("%d links", links), func(t *testing.T) {
			newFabric(t)
			dir := t.TempDir()
			p := startPeer(t, "dumper", []string{dir}, crashing)
			address := p.readLine()
			var others []*peer
			for range links {
				o := startPeer(t, "dumped", []string{address})
				require.Equal(t, "ready", o.readLine())
				others = append(others, o)
			}
			core, asked := abort(t, p, dir)
			for _, o := range others {
				why, when, _ := strings.Cut(o.readLine(), " after ")
				require.Contains(t, why, syscall.ECONNRESET.Error())
				at, err := strconv.ParseInt(when, 10, 64)
				require.NoError(t, err)
				t.Logf("told after %v", time.Unix(0, at).Sub(asked).Round(time.Millisecond))
				o.end()
			}
			n := onDisk(t, core)
			t.Logf("%d bytes", n)
			require.Less(t, n, int64(mostCore))
		})
	}
}

// The core dump of a PE has what it allocated of its own heap, and no other PE's.
func TestACoreDumpHasTheOwnHeap(t *testing.T) {
	wantCores(t)
	newFabric(t)
	dir, job := t.TempDir(), fabrictest.Name(t)
	var pes []*peer
	for pe := range 3 {
		pes = append(pes, startPeer(t, "dumped PE", []string{dir, strconv.Itoa(pe), job}, crashing))
	}
	var at []uint64
	for _, p := range pes {
		v, err := strconv.ParseUint(p.readLine(), 10, 64)
		require.NoError(t, err)
		at = append(at, v)
	}
	core, _ := abort(t, pes[0], dir)
	for _, p := range pes[1:] {
		require.Contains(t, p.readLine(), "PE 0 has ended")
	}
	n := onDisk(t, core)
	t.Logf("%d bytes", n)
	require.Less(t, n, int64(mostCore+1<<20))

	f, err := elf.Open(core)
	require.NoError(t, err)
	defer f.Close()
	i := slices.IndexFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_LOAD && p.Vaddr <= at[0] && at[0] < p.Vaddr+p.Filesz })
	require.GreaterOrEqual(t, i, 0, "the core dump has nothing at %#x", at[0])
	got := make([]byte, 1<<20)
	_, err = f.Progs[i].ReadAt(got, int64(at[0]-f.Progs[i].Vaddr))
	require.NoError(t, err)
	for i, b := range got {
		require.Equal(t, dumpedByte(i), b)
	}
}
