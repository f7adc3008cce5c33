//go:build amd64 || arm64

package sigbus

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// mapped returns memory of a file, which is guarded if guard is true.
func mapped(t *testing.T, pages int, guard bool) (*os.File, []byte) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	require.NoError(t, err)
	n := pages * os.Getpagesize()
	require.NoError(t, f.Truncate(int64(n)))
	mem, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Munmap(mem); f.Close() })
	if guard {
		g, err := Guard(mem)
		require.NoError(t, err)
		t.Cleanup(g.Release)
	}
	return f, mem
}

// Loads, stores and copies go on in a file that has shrunk, from several threads.
func TestAFileShrinks(t *testing.T) {
	for range 10 {
		f, mem := mapped(t, 64, true)
		for i := range mem {
			mem[i] = 1
		}
		var running sync.WaitGroup
		begun := make(chan struct{}, 4)
		for range cap(begun) {
			running.Go(func() {
				own := make([]byte, len(mem))
				copy(own, mem)
				begun <- struct{}{}
				for own[len(own)-1] != 0 {
					copy(own, mem)
					runtime.Gosched()
				}
			})
			<-begun
		}
		require.NoError(t, f.Truncate(0))
		running.Wait()
		require.Equal(t, make([]byte, len(mem)), mem)
		mem[5] = 7
		require.EqualValues(t, 7, mem[5])
	}
}

// What is not guarded is Go's: it can be a panic, or end the program.
func TestOthersSignals(t *testing.T) {
	_, mem := mapped(t, 1, true)
	f, other := mapped(t, 1, false)
	require.NoError(t, f.Truncate(0))
	require.Panics(t, func() {
		defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
		other[0] = 1
	})
	mem[0] = 1

	if os.Getenv("SIGBUS_DIE") != "" {
		unix.Kill(os.Getpid(), unix.SIGBUS)
		select {}
	}
	c := exec.Command("/proc/self/exe", "-test.run=^TestOthersSignals$")
	c.Env = append(os.Environ(), "SIGBUS_DIE=1")
	out, err := c.CombinedOutput()
	if errors.Is(err, unix.ENOEXEC) {
		t.Skip("an emulated program can start no other")
	}
	require.Error(t, err)
	require.Contains(t, string(out), "SIGBUS")
}

// An entry is used again, and there are not more than that.
func TestEntries(t *testing.T) {
	_, mem := mapped(t, 1, false)
	var all []Memory
	for range maxGuarded {
		m, err := Guard(mem)
		require.NoError(t, err)
		all = append(all, m)
	}
	_, err := Guard(mem)
	require.Error(t, err)
	for i := range all {
		all[i].Release()
		all[i].Release()
	}
	m, err := Guard(mem)
	require.NoError(t, err)
	m.Release()
}
