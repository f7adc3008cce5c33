package hostdir

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
)

// exclusive opens a directory and takes an exclusive flock on it.
func exclusive(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	require.NoError(t, unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	return f
}

// As long as a process is in a fabric, nobody gets an exclusive flock on
// the directory.
func TestAFabricsDirectoryIsLocked(t *testing.T) {
	leak.Check(t)
	base := newBase(t)
	path := filepath.Join(base, "default")
	d := openDir(t, base)
	p, _, _ := startHolder(t, base)
	try := func() string { return start(t, self(t), "flock", path, nil).line(t) }
	busy := syscall.EWOULDBLOCK.Error()
	require.Equal(t, busy, try())
	require.NoError(t, d.Close())
	require.Equal(t, busy, try())
	p.kill()
	require.Equal(t, "granted", try())
}

// Who enters a directory that is removed behind an exclusive flock makes it again.
func TestADirectoryIsEnteredBehindAnExclusiveLock(t *testing.T) {
	leak.Check(t)
	base := newBase(t)
	path := filepath.Join(base, "default")
	require.NoError(t, os.MkdirAll(path, 0o700))
	f := exclusive(t, path)
	place, err := In(base, "default").open(true)
	require.NoError(t, err)
	defer place.close()
	err = place.lock(unix.LOCK_SH, 3*holdPause)
	require.ErrorIs(t, err, syscall.EBUSY)
	require.ErrorContains(t, err, path)
	require.NoError(t, os.Remove(path))
	require.False(t, place.exists())
	require.NoError(t, f.Close())
	p, err := In(base, "default").enter(true)
	require.NoError(t, err)
	defer p.close()
	info, err := os.Stat(path)
	require.NoError(t, err)
	own, err := p.dir.Stat()
	require.NoError(t, err)
	require.True(t, os.SameFile(info, own))
}

// An exclusive flock that does not end keeps nobody out. Who has entered beside it takes the shared
// one when it ends.
func TestADirectoryIsEnteredBesideAnExclusiveLock(t *testing.T) {
	leak.Check(t)
	base := newBase(t)
	path := filepath.Join(base, "default")
	require.NoError(t, os.MkdirAll(path, 0o700))
	f := exclusive(t, path)
	require.NoError(t, enter(In(base, "default")))
	d, _ := openMember(t, base)
	require.NoError(t, f.Close())
	<-d.place.late.ended
	other, err := os.Open(path)
	require.NoError(t, err)
	defer other.Close()
	require.Equal(t, syscall.EWOULDBLOCK, unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB))
	require.NoError(t, d.Close())
	require.NoError(t, unix.Flock(int(other.Fd()), unix.LOCK_EX|unix.LOCK_NB))
}
