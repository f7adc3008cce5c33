package proxy

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// keepsAlive returns after how many seconds of silence the kernel asks whether the peer of a connection is there, or 0.
func keepsAlive(t *testing.T, c net.Conn) (seconds int) {
	raw := rawSocket(c)
	require.NotNil(t, raw)
	require.NoError(t, raw.Control(func(fd uintptr) {
		if on, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE); err == nil && on != 0 {
			seconds, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_KEEPIDLE)
		}
	}))
	return seconds
}
