//go:build amd64 || arm64

package sigbus

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// mapped returns memory of a file, and its guard if it is to have one.
func mapped(t *testing.T, pages int, guard bool) (*os.File, []byte, *Memory) {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "memory"))
	require.NoError(t, err)
	n := pages * os.Getpagesize()
	require.NoError(t, f.Truncate(int64(n)))
	mem, err := unix.Mmap(int(f.Fd()), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	t.Cleanup(func() { unix.Munmap(mem); f.Close() })
	if !guard {
		return f, mem, nil
	}
	g, err := Guard(mem)
	require.NoError(t, err)
	t.Cleanup(g.Release)
	return f, mem, &g
}

// Loads, stores and copies go on in a file that has shrunk, from several threads.
func TestAFileShrinks(t *testing.T) {
	for range 10 {
		f, mem, guard := mapped(t, 64, true)
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
				for {
					copy(own, mem)
					if guard.Lost() {
						return
					}
					assert.False(t, bytes.Contains(own, []byte{0}), "zeros before the loss was seen")
					runtime.Gosched()
				}
			})
			<-begun
		}
		require.False(t, guard.Lost())
		require.NoError(t, f.Truncate(0))
		running.Wait()
		require.True(t, guard.Lost())
		require.Equal(t, make([]byte, len(mem)), mem)
		mem[5] = 7
		require.EqualValues(t, 7, mem[5])
	}
}

// What is not guarded is Go's: it can be a panic, or end the program.
func TestOthersSignals(t *testing.T) {
	_, mem, _ := mapped(t, 1, true)
	f, other, _ := mapped(t, 1, false)
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
	c.Env = append(os.Environ(), "SIGBUS_DIE=1", "TMPDIR="+t.TempDir()) // where it leaves its own
	out, err := c.CombinedOutput()
	if errors.Is(err, unix.ENOEXEC) {
		t.Skip("an emulated program can start no other")
	}
	require.Error(t, err)
	require.Contains(t, string(out), "SIGBUS")
}

// An entry is used again, and there are not more than that.
func TestEntries(t *testing.T) {
	_, mem, _ := mapped(t, 1, false)
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
