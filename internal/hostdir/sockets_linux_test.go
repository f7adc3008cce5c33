package hostdir

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func wantSocket(t *testing.T, d *Dir, port int, cookie uint64, want ...int) {
	t.Helper()
	got, ok, err := d.SocketHolder(port, cookie)
	require.NoError(t, err)
	require.Equal(t, len(want) > 0, ok, "port %d, cookie %d", port, cookie)
	if ok {
		require.Contains(t, want, got, "port %d, cookie %d", port, cookie)
	}
}

func wantSockets(t *testing.T, d *Dir, port int, want bool) {
	t.Helper()
	_, got, err := d.AnySocket(port)
	require.NoError(t, err)
	require.Equal(t, want, got, "port %d", port)
}

func TestPublishedSocketsEndWithTheirProcess(t *testing.T) {
	base := newBase(t)
	d, _ := openMember(t, base)
	p, number, port := startHolder(t, base)
	wantSocket(t, d, port, testCookie, number)
	wantSocket(t, d, port, testCookie+1)
	wantSocket(t, d, port-1, testCookie)
	wantSockets(t, d, port, true)
	p.kill()
	wantSocket(t, d, port, testCookie)
	wantSockets(t, d, port, false)
	openMember(t, base) // it removes what the dead process has left
	d.Close()
	onlyClaimFile(t, base)
}

func TestPublishedSockets(t *testing.T) {
	base := newBase(t)
	d, one := openMember(t, base)
	e, two := openMember(t, base)
	const low, high = 1, 1<<30 - 1 // the extremes of the part of a cookie that is kept
	for _, port := range []int{1, 80, MaxPort} {
		for _, cookie := range []uint64{low, low + 1, high} {
			require.NoError(t, d.PublishSocket(port, cookie))
			for _, dir := range []*Dir{d, e} {
				wantSocket(t, dir, port, cookie, one)
				wantSockets(t, dir, port, true)
			}
		}
	}
	for _, port := range []int{2, 79, 81, MaxPort - 1} {
		wantSockets(t, e, port, false)
	}
	// Two processes share a socket, and one of them publishes it twice.
	require.NoError(t, e.PublishSocket(80, high))
	require.NoError(t, e.PublishSocket(80, high))
	wantSocket(t, d, 80, high, one, two)
	d.WithdrawSocket(80, high)
	d.WithdrawSocket(80, high) // once too often
	wantSocket(t, d, 80, high, two)
	e.WithdrawSocket(80, high)
	wantSocket(t, d, 80, high, two)
	e.WithdrawSocket(80, high)
	wantSocket(t, d, 80, high)
	wantSocket(t, d, 80, low, one)
	// Ports and processes are claimed beside the sockets.
	_, err := e.ClaimPort(80)
	require.NoError(t, err)
	holder, ok, err := d.Holder(80)
	require.True(t, ok && err == nil && holder == two)
	processes, err := d.Processes()
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, processes)
	require.NoError(t, d.Close())
	wantSockets(t, e, 1, false)
	require.ErrorIs(t, d.PublishSocket(1, 1), errDirClosed)
}
