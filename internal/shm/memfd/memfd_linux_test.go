package memfd

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const pages = 16 * 4096

// A kernel before 6.3 refuses the flag, and is asked again without. A later one may refuse files
// without it.
func TestAKernelIsAskedForTheFilesThatItHas(t *testing.T) {
	var asked []int
	fd, err := create("old", func(name string, flags int) (int, error) {
		asked = append(asked, flags)
		if flags&unix.MFD_NOEXEC_SEAL != 0 {
			return -1, unix.EINVAL
		}
		return unix.MemfdCreate(name, flags)
	})
	require.NoError(t, err)
	unix.Close(fd)
	require.Len(t, asked, 2)
	_, err = create("strict", func(_ string, flags int) (int, error) {
		if flags&unix.MFD_NOEXEC_SEAL == 0 {
			return -1, unix.EACCES // vm.memfd_noexec is 2
		}
		return 7, nil
	})
	require.NoError(t, err)
	_, err = create("none", func(string, int) (int, error) { return -1, unix.EMFILE })
	require.Equal(t, unix.EMFILE, err)
}

func TestAFileKeepsItsSize(t *testing.T) {
	fd, err := Create("test", pages)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, Check(fd, pages))
	require.EqualError(t, Check(fd, pages+1), fmt.Sprintf("%d bytes, want %d", pages, pages+1))
	for _, n := range []int64{0, pages - 1, pages + 1} {
		require.Equal(t, unix.EPERM, unix.Ftruncate(fd, n))
	}
	_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_WRITE)
	require.Equal(t, unix.EPERM, err)
}

// A hole that somebody punches reads as zeros, in each mapping, and takes pages again.
func TestAHoleReadsAsZeros(t *testing.T) {
	fd, err := Create("test", pages)
	require.NoError(t, err)
	defer unix.Close(fd)
	mem, err := unix.Mmap(fd, 0, pages, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	require.NoError(t, err)
	defer unix.Munmap(mem)
	copy(mem, bytes.Repeat([]byte{7}, pages))
	require.NoError(t, unix.Fallocate(fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, 0, pages))
	require.Equal(t, make([]byte, pages), mem)
	require.NoError(t, Check(fd, pages))
	mem[5000] = 3
	require.Equal(t, byte(3), mem[5000])
}

// Where vm.memfd_noexec is 2, only files that cannot be executed can be made. The setting is of
// a pid namespace.
func TestFilesWhereMemoryCannotBeExecuted(t *testing.T) {
	if os.Getenv("MEMFD_STRICT") != "" {
		strict(t)
		return
	}
	c := exec.Command(os.Args[0], "-test.run", "^"+t.Name()+"$", "-test.v")
	c.Env = append(os.Environ(), "MEMFD_STRICT=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	out, err := c.CombinedOutput()
	if strings.Contains(string(out), "cannot set") || c.ProcessState == nil {
		fmt.Printf("WARNING: %s is skipped: no pid namespace with vm.memfd_noexec=2: %v %s\n", t.Name(), err, out)
		t.Skip("no pid namespace with vm.memfd_noexec=2")
	}
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: "+t.Name())
}

func strict(t *testing.T) {
	if err := os.WriteFile("/proc/sys/vm/memfd_noexec", []byte("2"), 0); err != nil {
		t.Fatal("cannot set vm.memfd_noexec: ", err)
	}
	_, err := unix.MemfdCreate("program", unix.MFD_CLOEXEC|unix.MFD_EXEC)
	require.Equal(t, unix.EACCES, err, "the setting does not count")
	fd, err := Create("test", pages)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, Check(fd, pages))
}
