package sdp

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// tcpSocket asks the kernel for the state of a TCP socket, the bytes that have arrived, and
// those of them that were not read.
func tcpSocket(t *testing.T, fd int) (state, arrived, unread int) {
	info, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	require.NoError(t, err)
	unread, err = unix.IoctlGetInt(fd, unix.SIOCINQ)
	require.NoError(t, err)
	return int(info.State), int(info.Bytes_received), unread
}
