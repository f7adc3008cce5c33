package symheap

import (
	"os"
	"testing"

	"github.com/ntbnet/ntbnet/internal/shm/memfd"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A heap is mapped only if it has the right token.
func TestAHeapIsFoundByItsToken(t *testing.T) {
	const size = 1 << 20
	m, err := NewMapped(size, 7)
	require.NoError(t, err)
	defer m.Close()
	f, _ := m.File()
	there, err := Map(f, size, 7)
	require.NoError(t, err)
	there.Bytes[5000] = 3
	require.Equal(t, byte(3), m.Bytes[5000])
	there.Close()
	_, err = Map(f, size, 8)
	require.ErrorContains(t, err, "another heap")
}

func TestWhatIsNoHeapIsNotMapped(t *testing.T) {
	const size = 2 << 20
	mem := func(flags, seal int, n int64) func(t *testing.T) int {
		return func(t *testing.T) int {
			fd, err := unix.MemfdCreate("heap", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING|flags)
			require.NoError(t, err)
			require.NoError(t, unix.Ftruncate(fd, n))
			if flags&unix.MFD_HUGETLB == 0 {
				_, err = unix.Pwrite(fd, []byte{7, 0, 0, 0, 0, 0, 0, 0}, TokenAt)
				require.NoError(t, err)
			}
			_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seal)
			require.NoError(t, err)
			return fd
		}
	}
	for name, tt := range map[string]struct {
		make func(t *testing.T) int
		want string
	}{
		"good":             {mem(0, memfd.Seals, size), ""},
		"huge pages":       {mem(unix.MFD_HUGETLB, memfd.Seals, size), "ordinary pages"},
		"not sealed":       {mem(0, unix.F_SEAL_GROW|unix.F_SEAL_SEAL, size), "not sealed"},
		"another size":     {mem(0, memfd.Seals, size-4096), "bytes"},
		"without a token":  {mem(0, memfd.Seals|unix.F_SEAL_WRITE, size), "map symmetric heap"},
		"a file on a disk": {func(t *testing.T) int { return opened(t, t.TempDir()+"/file", unix.O_CREAT|unix.O_RDWR) }, "not sealed"},
		"a device":         {func(t *testing.T) int { return opened(t, "/dev/zero", unix.O_RDWR) }, "not sealed"},
		"a directory":      {func(t *testing.T) int { return opened(t, t.TempDir(), unix.O_RDONLY) }, "not sealed"},
		"a pipe": {func(t *testing.T) int {
			var fds [2]int
			require.NoError(t, unix.Pipe2(fds[:], unix.O_CLOEXEC))
			t.Cleanup(func() { unix.Close(fds[0]) })
			return fds[1]
		}, "not sealed"},
		"nothing": {func(*testing.T) int { return -1 }, "not sealed"},
	} {
		t.Run(name, func(t *testing.T) {
			f := os.NewFile(uintptr(tt.make(t)), name)
			defer f.Close()
			m, err := Map(f, size, 7)
			if tt.want == "" {
				require.NoError(t, err)
				m.Close()
				return
			}
			require.Error(t, err)
			require.Regexp(t, tt.want, err.Error())
		})
	}
}

func opened(t *testing.T, name string, how int) int {
	fd, err := unix.Open(name, how|unix.O_CLOEXEC, 0o600)
	require.NoError(t, err)
	return fd
}
