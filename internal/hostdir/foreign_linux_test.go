package hostdir

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Of others' fabrics names and locks are read, whatever else these have put there, and nobody is dialled.
func TestFabricsOfOtherUsers(t *testing.T) {
	tmp, run := t.TempDir(), t.TempDir()
	base := filepath.Join(tmp, "ntbnet-"+strconv.Itoa(os.Geteuid()))
	dir, err := Open(In(base, "shop"), true)
	require.NoError(t, err)
	defer dir.Close()
	process, err := dir.ClaimProcess()
	require.NoError(t, err)
	port, err := dir.ClaimPort(8080)
	require.NoError(t, err)
	owner, err := dir.ClaimOwner()
	require.NoError(t, err)
	require.Equal(t, process, owner)
	cable := func(n int) string {
		return filepath.Join(base, "shop", fmt.Sprintf("cable-%d-%s", n, strings.Repeat("a", 32)))
	}
	ln, err := net.Listen("unix", cable(process))
	require.NoError(t, err)
	defer ln.Close()
	require.NoError(t, os.WriteFile(cable(7), nil, 0o600))

	put := func(name string, make func(claims string) error) {
		require.NoError(t, os.Mkdir(filepath.Join(base, name), 0o700))
		require.NoError(t, make(filepath.Join(base, name, Place{}.claimFile())))
	}
	put("fifo", func(claims string) error { return unix.Mkfifo(claims, 0o600) })
	put("link", func(claims string) error { return os.Symlink(filepath.Join(base, "shop", Place{}.claimFile()), claims) })
	put("open", func(claims string) error { return os.WriteFile(claims, nil, 0o644) })
	put("empty", func(string) error { return nil })
	put("leased", func(claims string) error {
		f, err := os.OpenFile(claims, os.O_CREATE|os.O_RDWR, 0o600)
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		_, err = unix.FcntlInt(f.Fd(), unix.F_SETLEASE, unix.F_WRLCK)
		return err
	})
	require.NoError(t, os.Symlink(filepath.Join(base, "shop"), filepath.Join(base, "symlink")))
	require.NoError(t, os.Symlink(base, filepath.Join(tmp, "ntbnet-77")))
	require.NoError(t, os.Mkdir(filepath.Join(run, "78"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(tmp, "ntbnet-x"), nil, 0o600))

	errs := map[string]string{}
	for _, f := range foreign(run, tmp, -1, time.Hour) {
		if f.Name == "shop" {
			require.NoError(t, f.Err)
			require.Equal(t, Foreigner{
				UID: os.Geteuid(), Name: "shop", Path: filepath.Join(base, "shop"), Processes: []int{process}, Owner: process,
				Holdings: []Holding{{Process: process, Port: port}}, Dead: []string{cable(7)},
			}, f)
			continue
		}
		require.Empty(t, f.Processes, f.Name)
		errs[filepath.Base(f.Path)] = fmt.Sprint(f.Err)
	}
	for name, want := range map[string]string{
		"fifo": "want a private one", "link": "too many levels of symbolic links", "open": "has mode 0644 and owner", "empty": "<nil>",
		"leased": "resource temporarily unavailable", "symlink": "not a directory", "78": "want a private one", "ntbnet-77": "not a directory",
	} {
		require.Contains(t, errs[name], want, name)
	}
	for _, f := range foreign(run, tmp, os.Geteuid(), time.Hour) {
		require.Empty(t, f.Name, "all but the two are this user's own")
	}

	// The first who connects is this test.
	c, err := net.Dial("unix", cable(process))
	require.NoError(t, err)
	defer c.Close()
	_, err = c.Write([]byte{42})
	require.NoError(t, err)
	first, err := ln.Accept()
	require.NoError(t, err)
	defer first.Close()
	b := make([]byte, 1)
	_, err = first.Read(b)
	require.NoError(t, err)
	require.Equal(t, []byte{42}, b)
}

// Locks without end take a bounded time.
func TestLocksOfOtherUsersAreLookedAtForATime(t *testing.T) {
	f, err := os.CreateTemp(t.TempDir(), "")
	require.NoError(t, err)
	defer f.Close()
	c := newClaims(&timedLocks{fd: int(f.Fd()), until: time.Now()})
	_, err = c.Processes()
	require.ErrorIs(t, err, os.ErrDeadlineExceeded)
}
