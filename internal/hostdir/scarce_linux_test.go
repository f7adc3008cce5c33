package hostdir

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// enter joins a fabric and leaves it.
func enter(p Place) error {
	d, err := Open(p, true)
	if err != nil {
		return err
	}
	defer d.Close()
	process, err := d.ClaimProcess()
	if err != nil {
		return err
	}
	l, err := d.Listen(process)
	if err != nil {
		return err
	}
	return l.Close()
}

// playScarce joins a fabric with 0, 1, 2, … more descriptors than it has, until that works. It
// prints what is wrong with the errors.
func playScarce(base string) error {
	places := []Place{In(base, "default"), At(filepath.Join(base, "shared"), 0, strconv.Itoa(os.Getegid()))}
	for _, p := range places {
		if err := enter(p); err != nil { // opens what the runtime keeps open, too
			return err
		}
		limit := unix.Rlimit{Max: 256}
		refused := 0
		for limit.Cur = 3; ; limit.Cur++ {
			if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
				return err
			}
			err := enter(p)
			if err == nil {
				break
			}
			refused++
			if !errors.Is(err, syscall.EMFILE) || errors.Is(err, syscall.EPERM) || strings.Contains(err.Error(), "mount") || limit.Cur > 100 {
				return fmt.Errorf("with %d descriptors: %w", limit.Cur, err)
			}
		}
		if refused == 0 {
			return errors.New("nothing was refused")
		}
	}
	fmt.Println("said")
	return nil
}

// Who has no descriptors left is told that, wherever they end.
func TestALackOfDescriptorsIsSaid(t *testing.T) {
	base := newBase(t)
	require.NoError(t, os.Mkdir(base, 0o700))
	require.Equal(t, "said", start(t, self(t), "scarce", base, nil).line(t))
}

// playUmask joins fabrics of places that are not there under a umask: MASK BASE.
func playUmask(arg string) error {
	mask, base, _ := strings.Cut(arg, " ")
	bits, err := strconv.ParseUint(mask, 8, 32)
	if err != nil {
		return err
	}
	syscall.Umask(int(bits))
	for _, p := range []Place{In(base+"/own", "default"), At(base+"/shared", 0, strconv.Itoa(os.Getegid()))} {
		if err := enter(p); err != nil {
			return err
		}
	}
	fmt.Println("entered")
	return nil
}

// The umask of the process that makes the directories does not count.
func TestAUmaskThatTakesTheOwnersBits(t *testing.T) {
	for _, mask := range []string{"0277", "0700", "0777"} {
		base := t.TempDir()
		require.Equal(t, "entered", start(t, self(t), "umask", mask+" "+base, nil).line(t), mask)
		for path, want := range map[string]os.FileMode{
			"own": 0o700, "own/default": 0o700, "own/default/claims-v2": 0o600,
			"shared": 0o770, "shared/claims-v2": 0o660,
		} {
			info, err := os.Stat(filepath.Join(base, path))
			require.NoError(t, err, mask)
			require.Equal(t, want, info.Mode().Perm(), path)
		}
		openDir(t, filepath.Join(base, "own"))
	}
}

// A directory of this user's own that is closed to all others is mended, and no other.
func TestADirectoryWithTooFewBitsIsMended(t *testing.T) {
	for _, mode := range []os.FileMode{0, 0o100, 0o500, 0o600} {
		base := newBase(t)
		path := filepath.Join(base, "default")
		require.NoError(t, enter(In(base, "default")))
		require.NoError(t, os.Chmod(path, mode))
		require.NoError(t, os.Chmod(base, mode))
		require.NoError(t, enter(In(base, "default")), "%#o", mode)
		for _, p := range []string{base, path} {
			info, err := os.Stat(p)
			require.NoError(t, err)
			require.Equal(t, os.FileMode(0o700), info.Mode().Perm())
		}
	}
	for _, mode := range []os.FileMode{0o050, 0o510, 0o701, 0o755} {
		base := newBase(t)
		require.NoError(t, os.Mkdir(base, 0o700))
		require.NoError(t, os.Chmod(base, mode))
		err := enter(In(base, "default"))
		require.ErrorIs(t, err, syscall.EPERM, "%#o", mode)
		info, err := os.Stat(base)
		require.NoError(t, err)
		require.Equal(t, mode, info.Mode().Perm())
	}
}

// A user who may write nowhere has no place for fabrics, even if others have one.
func TestWithoutADirectoryToWriteToThereIsNoPlace(t *testing.T) {
	parent := t.TempDir()
	require.NoError(t, os.Chmod(parent, 0o555))
	exe, attr := self(t), (*syscall.SysProcAttr)(nil)
	if os.Geteuid() == 0 { // who may write everywhere
		exe, attr = asNobody(t)
		require.NoError(t, os.Chmod(filepath.Dir(parent), 0o755))
	}
	require.Contains(t, start(t, exe, "unsupported", filepath.Join(parent, "base"), attr).line(t), "true fabric: make directory")
}
