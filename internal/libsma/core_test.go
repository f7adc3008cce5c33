//go:build linux

package main

import (
	"debug/elf"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// The core dump of a PE has what it allocated of its own heap, and no other PE's heap.
func TestACoreDumpHasTheOwnHeap(t *testing.T) {
	pattern, err := os.ReadFile("/proc/sys/kernel/core_pattern")
	if err != nil || strings.ContainsAny(string(pattern), "|/") {
		t.Skipf("WARNING: core dumps go elsewhere: %s, %v", pattern, err)
	}
	dir := t.TempDir()
	exe := compile(t, "oshcc", "../../cmd/libsma/testdata/programs/core.c")
	r := start(t, 3, []string{"SHMEM_SYMMETRIC_SIZE=256M"}, exe, dir)
	assert.Equal(t, 128+int(syscall.SIGABRT), r.status, r.errors)
	at, err := strconv.ParseUint(strings.TrimSpace(r.out), 10, 64)
	require.NoError(t, err)
	cores, err := filepath.Glob(filepath.Join(dir, "core*"))
	require.NoError(t, err)
	require.Len(t, cores, 1)
	var st syscall.Stat_t
	require.NoError(t, syscall.Stat(cores[0], &st))
	t.Logf("%d bytes", st.Blocks*512)
	assert.Less(t, st.Blocks*512, int64(65<<20))

	f, err := elf.Open(cores[0])
	require.NoError(t, err)
	defer f.Close()
	got := make([]byte, 1<<20)
	found := false
	for _, p := range f.Progs {
		if p.Type == elf.PT_LOAD && p.Vaddr <= at && at+uint64(len(got)) <= p.Vaddr+p.Filesz {
			found = true
			_, err = p.ReadAt(got, int64(at-p.Vaddr))
			require.NoError(t, err)
		}
	}
	require.True(t, found, "nothing at %#x", at)
	for i, b := range got {
		require.Equal(t, byte(i*7), b, i)
	}
}
