package hostdir

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// Processes of a host in memory find each other's claims, and those of one that has closed are free.
func TestClaimsInMemory(t *testing.T) {
	var host Memory
	owner, one, err := host.Join(true)
	require.NoError(t, err)
	require.Equal(t, 1, one)
	_, _, err = host.Join(true)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	other, two, err := host.Join(false)
	require.NoError(t, err)
	require.Equal(t, 2, two)
	all, err := other.Processes()
	require.NoError(t, err)
	require.Equal(t, []int{1, 2}, all)
	process, ok, err := other.Owner()
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, one, process)

	port, err := owner.ClaimPort(0)
	require.NoError(t, err)
	require.GreaterOrEqual(t, port, FirstFree)
	for _, c := range []*Claims{owner, other} {
		_, err = c.ClaimPort(port)
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		process, ok, err = c.Holder(port)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, one, process)
	}
	other.ReleasePort(port) // not its own
	_, ok, err = other.Holder(port)
	require.NoError(t, err)
	require.True(t, ok)

	const cookie = 1<<29 + 7
	require.NoError(t, other.PublishSocket(MaxPort, cookie))
	require.NoError(t, other.PublishSocket(MaxPort, cookie))
	other.WithdrawSocket(MaxPort, cookie)
	process, ok, err = owner.SocketHolder(MaxPort, cookie)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, two, process)
	s, ok, err := owner.AnySocket(MaxPort)
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, Socket{Cookie: cookie, Process: two}, s)
	other.WithdrawSocket(MaxPort, cookie)
	_, ok, err = owner.AnySocket(MaxPort)
	require.NoError(t, err)
	require.False(t, ok)

	require.NoError(t, owner.Close())
	_, err = owner.ClaimPort(1)
	require.ErrorIs(t, err, os.ErrClosed)
	process, err = other.ClaimPort(port)
	require.NoError(t, err)
	require.Equal(t, port, process)
	_, three, err := host.Join(true)
	require.NoError(t, err)
	require.Equal(t, 1, three, "the lowest number that is free")
}
