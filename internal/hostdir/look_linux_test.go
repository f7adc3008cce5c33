package hostdir

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
)

func TestHoldingsAreThoseOfAllProcesses(t *testing.T) {
	leak.Check(t)
	base := newBase(t)
	d, me := openMember(t, base)
	for _, port := range []int{1, 80, MaxPort} {
		_, err := d.ClaimPort(port)
		require.NoError(t, err)
	}
	require.NoError(t, d.PublishSocket(80, 1))
	require.NoError(t, d.PublishSocket(80, 2), "another socket of the same port")
	require.NoError(t, d.PublishSocket(MaxPort, 3))
	_, other, port := startHolder(t, base)
	want := []Holding{
		{me, 1, false}, {me, 80, false}, {me, 80, true}, {me, MaxPort, false}, {me, MaxPort, true},
		{other, port, false}, {other, port, true},
	}
	got, err := d.Holdings()
	require.NoError(t, err)
	require.Equal(t, want, got)

	looking, err := Open(In(base, "default"), false)
	require.NoError(t, err)
	got, err = looking.Holdings()
	require.NoError(t, err)
	require.Equal(t, want, got, "of one who claims nothing")
	require.NoError(t, looking.Close())
	_, err = looking.Holdings()
	require.ErrorIs(t, err, os.ErrClosed)
}

// Locks that stand for no port of a process are no holdings.
func TestHoldingsAreOnlyThoseThatCanBe(t *testing.T) {
	base := newBase(t)
	d, me := openMember(t, base)
	for _, at := range []int64{portByte(7), portByte(7) + 1 + processBytes, socketByte(0, 1, me), socketByte(9, 1, 0)} {
		ok, err := d.file.lock(at)
		require.NoError(t, err)
		require.True(t, ok)
	}
	got, err := d.Holdings()
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestDeadSocketsAreFoundAndRemoved(t *testing.T) {
	leak.Check(t)
	base := newBase(t)
	p, number, _ := startHolder(t, base)
	d, err := Open(In(base, "default"), false)
	require.NoError(t, err)
	defer d.Close()
	dead, err := d.Dead()
	require.NoError(t, err)
	require.Empty(t, dead, "it lives")
	removed, err := d.RemoveDead()
	require.NoError(t, err)
	require.Empty(t, removed)

	p.kill()
	dead, err = d.Dead()
	require.NoError(t, err)
	require.Len(t, dead, 1)
	require.Equal(t, number, d.place.cableOf(filepath.Base(dead[0])))
	removed, err = d.RemoveDead()
	require.NoError(t, err)
	require.Equal(t, dead, removed)
	_, err = os.Lstat(dead[0])
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestListFindsTheDirectoriesOfABase(t *testing.T) {
	base := newBase(t)
	names, err := List(base)
	require.NoError(t, err)
	require.Empty(t, names)
	for _, name := range []string{"b@2", "a"} {
		d, err := Open(In(base, name), true)
		require.NoError(t, err)
		require.NoError(t, d.Close())
	}
	require.NoError(t, os.WriteFile(filepath.Join(base, "file"), nil, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(base, ".hidden"), 0o700))
	names, err = List(base)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b@2"}, names)
	require.NoError(t, os.Chmod(base, 0o755))
	_, err = List(base)
	require.ErrorContains(t, err, "has mode 0755, want 0700: chmod 700 it")
}

// A process that has opened a directory which is then removed would be alone there.
func TestNoNumberIsClaimedInADirectoryThatWasRemoved(t *testing.T) {
	leak.Check(t)
	base := newBase(t)
	for _, claim := range []func(*Dir) (int, error){(*Dir).ClaimProcess, (*Dir).ClaimOwner} {
		d, err := Open(In(base, "default"), true)
		require.NoError(t, err)
		require.NoError(t, Remove(In(base, "default")))
		_, err = claim(d)
		require.ErrorIs(t, err, syscall.ESTALE)
		require.NoError(t, d.Close())
	}
}

func TestHostsOfADirectoryThatTheyShare(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	for _, host := range []int{0, 3, 16} {
		d, err := Open(At(dir, host, ""), true)
		require.NoError(t, err)
		require.NoError(t, d.Close())
	}
	hosts, err := At(dir, 0, "").Hosts(15)
	require.NoError(t, err)
	require.Equal(t, []int{0, 3}, hosts)
}
