//go:build linux && (amd64 || arm64)

package fabric

import (
	"context"
	"os"
	"strconv"
	"testing"

	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
)

// silent is a process that accepts a cable, says nothing, and keeps the cable when it has left the
// fabric.
func silent(t *testing.T, place hostdir.Place) (number int, accepted <-chan struct{}, leave func()) {
	t.Helper()
	d, err := hostdir.Open(place, true)
	require.NoError(t, err)
	number, err = d.ClaimProcess()
	require.NoError(t, err)
	l, err := d.Listen(number)
	require.NoError(t, err)
	got := make(chan struct{})
	go func() {
		c, err := d.Accept(l)
		if err == nil {
			t.Cleanup(func() { c.Close() })
		}
		close(got)
	}()
	return number, got, func() {
		require.NoError(t, l.Close())
		require.NoError(t, d.Close())
	}
}

// A dial that was given up is not joined by one to another process that has got the number.
func TestALinkIsMadeToTheProcessThatHasTheNumber(t *testing.T) {
	leak.Check(t)
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	open := func() *Fabric {
		spec, err := spec.Parse("shm:" + dir)
		require.NoError(t, err)
		f, err := Open(spec, func(*Fabric) {})
		require.NoError(t, err)
		return f
	}
	a := open()
	defer a.Close()
	number, accepted, leave := silent(t, hostdir.At(dir, 0, ""))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	id := link.MakeID(a.Host(), number)
	go func() { _, err := a.Peer(ctx, id, nil); ended <- err }()
	<-accepted
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	leave()

	b := open()
	defer b.Close()
	require.Equal(t, id, b.Node().ID())
	p, err := a.Peer(t.Context(), id, nil)
	require.NoError(t, err)
	require.Equal(t, id, p.ID())
}

// Who must be of a certain user is not reached as another one, by a link that is there, or is being
// made, or by a new one.
func TestALinkToAnotherUserIsNotUsed(t *testing.T) {
	leak.Check(t)
	dir := t.TempDir()
	require.NoError(t, os.Chmod(dir, 0o700))
	spec, err := spec.Parse("shm:" + dir)
	require.NoError(t, err)
	a, err := Open(spec, func(*Fabric) {})
	require.NoError(t, err)
	defer a.Close()
	uid := os.Geteuid()
	number, accepted, leave := silent(t, hostdir.At(dir, 0, ""))
	id := link.MakeID(a.Host(), number)
	_, err = a.Peer(t.Context(), id, []int{uid + 1})
	require.ErrorIs(t, err, ErrOtherUser)
	require.ErrorContains(t, err, "uid "+strconv.Itoa(uid))

	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { _, err := a.Peer(ctx, id, nil); ended <- err }()
	<-accepted
	_, err = a.Peer(t.Context(), id, []int{uid + 1})
	require.ErrorIs(t, err, ErrOtherUser)
	cancel()
	<-ended
	leave()

	b, err := Open(spec, func(*Fabric) {})
	require.NoError(t, err)
	defer b.Close()
	p, err := a.Peer(t.Context(), id, []int{uid + 1, uid})
	require.NoError(t, err)
	require.True(t, p.Up())
	same, err := a.Peer(t.Context(), id, []int{uid})
	require.NoError(t, err)
	require.Same(t, p, same)
	_, err = a.Peer(t.Context(), id, []int{uid + 1})
	require.ErrorIs(t, err, ErrOtherUser)
}
