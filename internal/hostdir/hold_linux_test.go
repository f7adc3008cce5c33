package hostdir

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ntbnet/ntbnet/internal/leak"
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

// As long as a process is in a fabric, or has its board open, nobody gets an exclusive flock on
// the directory.
func TestAFabricsDirectoryIsLocked(t *testing.T) {
	leak.Check(t)
	base := newBase(t)
	path := filepath.Join(base, "default")
	d := openDir(t, base)
	b, err := OpenBoard(In(base, "default"), true)
	require.NoError(t, err)
	p, _, _ := startHolder(t, base)
	try := func() string { return start(t, self(t), "flock", path, nil).line(t) }
	busy := syscall.EWOULDBLOCK.Error()
	require.Equal(t, busy, try())
	require.NoError(t, d.Close())
	require.Equal(t, busy, try())
	require.NoError(t, b.Close())
	require.Equal(t, busy, try())
	p.kill()
	require.Equal(t, "granted", try())
}

// Who enters a directory waits until an exclusive flock has ended, and finds out what has
// happened to the directory meanwhile.
func TestADirectoryIsEnteredBehindAnExclusiveLock(t *testing.T) {
	leak.Check(t)
	base := newBase(t)
	path := filepath.Join(base, "default")
	require.NoError(t, os.MkdirAll(path, 0o700))
	for _, remove := range []bool{false, true} {
		f := exclusive(t, path)
		place, err := In(base, "default").open(true)
		require.NoError(t, err)
		err = place.lock(unix.LOCK_SH, 3*holdPause)
		require.ErrorIs(t, err, syscall.EBUSY)
		require.ErrorContains(t, err, path)
		done := make(chan *openPlace)
		go func() {
			defer close(done)
			if p, err := In(base, "default").enter(true); err == nil {
				done <- p
			}
		}()
		select {
		case <-done:
			t.Error("entered beside an exclusive lock")
		case <-time.After(3 * holdPause):
		}
		if remove {
			require.NoError(t, os.Remove(path))
			require.False(t, place.exists())
		}
		place.close()
		require.NoError(t, f.Close())
		p := <-done
		require.NotNil(t, p)
		require.True(t, p.exists())
		info, err := os.Stat(path)
		require.NoError(t, err)
		own, err := p.dir.Stat()
		require.NoError(t, err)
		require.True(t, os.SameFile(info, own))
		p.close()
	}
}
