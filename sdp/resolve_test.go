package sdp

import (
	"context"
	"net"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
)

func TestResolveAddrIsWhatListenersAndConnectionsHave(t *testing.T) {
	leak.Check(t)
	ctx := context.Background()
	for _, c := range []struct {
		spec, here string
		elsewhere  map[string]string
	}{
		{"mem:resolve", "localhost", nil},
		{"ring:resolve?backend=mem&node=2&nodes=3", "node2", map[string]string{"node3:9": "node3:9", "1:9": "node1:9"}},
	} {
		f, err := Open(c.spec)
		require.NoError(t, err)
		ln, err := f.Listen("sdp", ":7000")
		require.NoError(t, err)
		for _, address := range []string{":7000", "localhost:7000", "127.0.0.1:7000", "LOCALHOST:7000", c.here + ":7000"} {
			a, err := f.ResolveAddr(ctx, address)
			require.NoError(t, err, address)
			require.Equal(t, ln.Addr(), net.Addr(a), address)
		}
		for address, want := range c.elsewhere {
			a, err := f.ResolveAddr(ctx, address)
			require.NoError(t, err)
			require.Equal(t, want, a.String())
		}
		_, err = f.ResolveAddr(ctx, "node4:1")
		require.ErrorIs(t, err, syscall.EHOSTUNREACH)
		require.ErrorAs(t, err, new(*net.OpError))
		_, err = f.ResolveAddr(ctx, "no port")
		require.ErrorAs(t, err, new(*net.AddrError))
		require.NoError(t, ln.Close())
		require.NoError(t, f.Close())
		_, err = f.ResolveAddr(ctx, ":7000")
		require.ErrorIs(t, err, net.ErrClosed)
	}
}
