package hostdir

import (
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
)

// newHome returns a home without a session.
func newHome(t *testing.T) home {
	t.Helper()
	top := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(top, "run"), 0o700))
	require.NoError(t, os.Mkdir(filepath.Join(top, "tmp"), 0o700))
	return homeOf(filepath.Join(top, "run"), filepath.Join(top, "tmp"), os.Geteuid())
}

// joinHome joins a fabric as a process does, and returns where that is.
func joinHome(h home, name string) (*Dir, string, error) {
	base, decided, err := h.choose([]string{name})
	if err != nil {
		return nil, "", err
	}
	defer decided()
	d, err := Open(In(base, name), true)
	if err != nil {
		return nil, "", err
	}
	_, err = d.ClaimProcess()
	return d, base, err
}

func mustJoin(t *testing.T, h home, name, want string) *Dir {
	t.Helper()
	d, base, err := joinHome(h, name)
	require.NoError(t, err)
	require.Equal(t, want, base)
	require.Equal(t, want, h.find([]string{name}))
	t.Cleanup(func() { d.Close() })
	return d
}

// Processes go where one is that has started before the session, as long as there is any.
func TestAFabricStaysWhereItIs(t *testing.T) {
	leak.Check(t)
	h := newHome(t)
	first := mustJoin(t, h, "x", h.tmp)
	require.NoError(t, os.Mkdir(h.session, 0o700))
	second := mustJoin(t, h, "x", h.tmp)
	other := mustJoin(t, h, "y", h.base) // of another fabric
	require.NoError(t, first.Close())
	third := mustJoin(t, h, "x", h.tmp)
	require.NoError(t, second.Close())
	require.NoError(t, third.Close())
	fourth := mustJoin(t, h, "x", h.base)
	require.Equal(t, []string{h.base, h.tmp}, h.bases())
	// The session has ended.
	require.NoError(t, os.RemoveAll(h.session))
	fifth := mustJoin(t, h, "x", h.tmp)
	require.Equal(t, []string{h.tmp}, h.bases())
	for _, d := range []*Dir{other, fourth, fifth} {
		require.NoError(t, d.Close())
	}
}

// A process that never finds the session, as under systemd's ProtectHome=yes, does not draw away
// those that come later from the ones that are there.
func TestAFabricInTheSessionStaysThere(t *testing.T) {
	leak.Check(t)
	h := newHome(t)
	require.NoError(t, os.Mkdir(h.session, 0o700))
	first := mustJoin(t, h, "x", h.base)
	blind := h
	blind.session += "-hidden"
	apart := mustJoin(t, blind, "x", h.tmp)
	second := mustJoin(t, h, "x", h.base)
	for _, d := range []*Dir{first, second} {
		require.NoError(t, d.Close())
	}
	third := mustJoin(t, h, "x", h.tmp)
	for _, d := range []*Dir{apart, third} {
		require.NoError(t, d.Close())
	}
}

// The temporary directory of another user, or of nobody, does not matter in a session.
func TestASessionNeedsNoTemporaryDirectory(t *testing.T) {
	leak.Check(t)
	h := newHome(t)
	require.NoError(t, os.Mkdir(h.session, 0o700))
	require.NoError(t, mustJoin(t, h, "x", h.base).Close())
	require.NoDirExists(t, h.tmp)
	require.NoError(t, os.Symlink("/etc", h.tmp)) // it is refused
	require.NoError(t, mustJoin(t, h, "x", h.base).Close())
	require.Equal(t, []string{h.base}, h.bases())
	require.NoError(t, os.RemoveAll(h.session))
	_, _, err := joinHome(h, "x")
	require.ErrorIs(t, err, syscall.EPERM)
}

// All that start while a session begins choose the same.
func TestProcessesThatStartAsASessionBegins(t *testing.T) {
	leak.Check(t)
	for range 30 {
		h := newHome(t)
		const processes = 8
		var dirs [processes]*Dir
		var bases [processes]string
		var errs [processes]error
		var all sync.WaitGroup
		begin := make(chan struct{})
		for i := range processes {
			all.Go(func() {
				<-begin
				dirs[i], bases[i], errs[i] = joinHome(h, "x")
			})
		}
		var made error
		all.Go(func() { <-begin; made = os.Mkdir(h.session, 0o700) })
		close(begin)
		all.Wait()
		require.NoError(t, made)
		for i := range processes {
			require.NoError(t, errs[i])
			require.Equal(t, bases[0], bases[i])
		}
		late := mustJoin(t, h, "x", bases[0])
		for _, d := range append(dirs[:], late) {
			require.NoError(t, d.Close())
		}
	}
}

// A process that does not decide keeps others waiting for so long.
func TestAProcessThatDoesNotDecide(t *testing.T) {
	leak.Check(t)
	h := newHome(t)
	base, decided, err := h.choose([]string{"x"})
	require.NoError(t, err)
	require.Equal(t, h.tmp, base)
	dir, err := os.Open(h.tmp)
	require.NoError(t, err)
	defer dir.Close()
	require.ErrorIs(t, unix.Flock(int(dir.Fd()), unix.LOCK_EX|unix.LOCK_NB), unix.EWOULDBLOCK)
	p := &openPlace{Place: Place{path: h.tmp}, dir: dir}
	err = p.lock(unix.LOCK_EX, 3*holdPause)
	require.ErrorIs(t, err, syscall.EBUSY)
	require.ErrorContains(t, err, h.tmp)
	decided()
	require.NoError(t, p.lock(unix.LOCK_EX, 0))
}
