package hostdir

import (
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
)

// guard is how long what must happen may take.
const guard = 30 * time.Second

// What ends a place, by what is done to its directory and what is above.
var losses = map[string]func(t *testing.T, above, dir string){
	"removed": func(t *testing.T, _, dir string) { require.NoError(t, os.RemoveAll(dir)) },
	"renamed": func(t *testing.T, _, dir string) { require.NoError(t, os.Rename(dir, dir+"-away")) },
	"replaced": func(t *testing.T, _, dir string) {
		require.NoError(t, os.Rename(dir, dir+"-away"))
		require.NoError(t, os.Mkdir(dir, 0o700))
	},
	"exchanged": func(t *testing.T, _, dir string) {
		require.NoError(t, os.Mkdir(dir+"-new", 0o700))
		require.NoError(t, unix.Renameat2(unix.AT_FDCWD, dir, unix.AT_FDCWD, dir+"-new", unix.RENAME_EXCHANGE))
	},
	"renamed above": func(t *testing.T, above, _ string) { require.NoError(t, os.Rename(above, above+"-away")) },
	"link above": func(t *testing.T, above, _ string) {
		link := filepath.Join(filepath.Dir(above), "link")
		require.NoError(t, os.Symlink("elsewhere", link+"-new"))
		require.NoError(t, os.Rename(link+"-new", link))
	},
	"claim file removed": func(t *testing.T, _, dir string) { require.NoError(t, os.Remove(filepath.Join(dir, "claims-v2"))) },
	"claim file replaced": func(t *testing.T, _, dir string) {
		file := filepath.Join(dir, "claims-v2")
		require.NoError(t, os.WriteFile(file+"-new", nil, 0o600))
		require.NoError(t, os.Rename(file+"-new", file))
	},
}

// openBelow opens a directory that lies below others, one of which is a link.
func openBelow(t *testing.T) (d *Dir, above, dir string) {
	t.Helper()
	top := t.TempDir()
	above = filepath.Join(top, "above")
	dir = filepath.Join(top, "link", "between", "dir")
	require.NoError(t, os.Symlink("above", filepath.Join(top, "link")))
	require.NoError(t, os.MkdirAll(filepath.Join(above, "between", "dir"), 0o700))
	d, err := Open(At(dir, 0, ""), true)
	require.NoError(t, err)
	t.Cleanup(func() { d.Close() })
	return d, above, dir
}

func TestALostPlaceIsNoticed(t *testing.T) {
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			d, above, dir := openBelow(t)
			lost := make(chan error, 2)
			d.Watch(func(err error) { lost <- err })
			require.NoError(t, d.Lost())
			lose(t, above, dir)
			select {
			case err := <-lost:
				require.ErrorIs(t, err, syscall.ESTALE)
				require.ErrorContains(t, err, dir)
				require.Equal(t, err, d.Lost())
			case <-time.After(guard):
				t.Fatal("not noticed")
			}
			require.NoError(t, d.Close())
			require.Empty(t, lost)
		})
	}
}

// Where no event says so, it is noticed when somebody asks.
func TestALostPlaceIsNoticedWithoutEvents(t *testing.T) {
	for name, lose := range losses {
		t.Run(name, func(t *testing.T) {
			leak.Check(t)
			d, above, dir := openBelow(t)
			lost := 0
			d.watch.lost, d.watch.looks, d.watch.own = func(error) { lost++ }, true, owned{d.file.own, d.cable}
			require.NoError(t, d.Lost())
			lose(t, above, dir)
			for range 3 {
				require.ErrorIs(t, d.Lost(), syscall.ESTALE)
			}
			require.Equal(t, 1, lost)
			require.NoError(t, d.Close())
			require.ErrorIs(t, d.Lost(), syscall.ESTALE)
		})
	}
}

// Without its socket nobody can connect to a process.
func TestAProcessWhoseSocketIsRemoved(t *testing.T) {
	for _, looks := range []bool{false, true} {
		leak.Check(t)
		d, n := openMember(t, newBase(t))
		l, err := d.Listen(n)
		require.NoError(t, err)
		defer l.Close()
		lost := make(chan error, 1)
		d.Watch(func(err error) { lost <- err })
		if looks {
			d.watch.stop()
			d.watch.looks = true
		}
		require.NoError(t, d.Lost())
		require.NoError(t, os.Remove(filepath.Join(d.Path(), d.cable)))
		if looks {
			require.ErrorIs(t, d.Lost(), syscall.ESTALE)
		}
		select {
		case err := <-lost:
			require.ErrorIs(t, err, syscall.ESTALE)
		case <-time.After(guard):
			t.Fatal("not noticed")
		}
		require.NoError(t, d.Close())
	}
}

// A place that was lost before it is watched.
func TestAPlaceThatIsLostAlready(t *testing.T) {
	leak.Check(t)
	d, _, dir := openBelow(t)
	require.NoError(t, os.RemoveAll(dir))
	var lost error
	d.Watch(func(err error) { lost = err })
	require.ErrorIs(t, lost, syscall.ESTALE)
	require.NoError(t, d.Close())
}

// What others do beside the directory, and processes in it, wakes nobody.
func TestWhatIsNoLossIsNoEvent(t *testing.T) {
	leak.Check(t)
	base := newBase(t)
	d, n := openMember(t, base)
	l, err := d.Listen(n)
	require.NoError(t, err)
	defer l.Close()
	events, looks := d.place.notify(owned{d.file.own, d.cable})
	require.NotNil(t, events)
	defer events.Close()
	require.False(t, looks)
	for i := range 50 {
		for _, dir := range []string{base, filepath.Dir(base)} {
			name := filepath.Join(dir, "another"+strconv.Itoa(i))
			require.NoError(t, os.WriteFile(name, nil, 0o600))
			require.NoError(t, os.Chmod(name, 0o640))
			require.NoError(t, os.Rename(name, name+"-renamed"))
			require.NoError(t, os.Remove(name+"-renamed"))
			require.NoError(t, os.Mkdir(name, 0o700))
			require.NoError(t, os.Remove(name))
		}
		other, err := Open(In(base, "default"), true)
		require.NoError(t, err)
		m, err := other.ClaimProcess()
		require.NoError(t, err)
		ol, err := other.Listen(m)
		require.NoError(t, err)
		c, err := other.Connect(t.Context(), n, nil)
		require.NoError(t, err)
		_, err = other.ClaimPort(0)
		require.NoError(t, err)
		c.Close()
		ol.Close()
		require.NoError(t, other.Close())
	}
	var b [4096]byte
	got, err := unix.Read(int(events.Fd()), b[:])
	require.ErrorIs(t, err, unix.EAGAIN, "%d bytes", got)
}
