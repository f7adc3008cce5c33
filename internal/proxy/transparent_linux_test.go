package proxy

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// integration has the test with rules of the kernel.
func TestATransparentMapIsNoOpenRelay(t *testing.T) {
	e := newEnv(t)
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		f, err := open(t.Context(), &Map{Listen: Endpoint{networkTCP, at}, Transparent: true}, env{fabric: e.fabric, log: e.log.logger(), hasAddress: func(netip.Addr) bool { return true }})
		require.NoError(t, err)
		go f.Serve()
		c, err := e.tryDial(f.Addr())
		if err == nil {
			err = readToError(c)
			c.Close()
		}
		require.True(t, isReset(err), err)
		require.EqualValues(t, 1, f.Stats().Refused)
		f.Close()
		e.logged("refused", "proxy", `"transparent: nothing redirected it"`)
	}
}

func TestAWayThatComesBackIsFoundFromEitherSide(t *testing.T) {
	at := func(port uint16) netip.AddrPort { return netip.AddrPortFrom(netip.MustParseAddr("10.77.0.1"), port) }
	var o ownWays
	first := &lastLine{way: way{at(1), at(80)}, onward: way{at(2), at(80)}}
	second := &lastLine{way: first.onward}
	require.True(t, o.accepted(first.way))
	require.True(t, o.dialled(first.onward))
	require.False(t, o.accepted(second.way))
	o.forget(second)
	require.True(t, o.dialled(first.onward))
	o.forget(first)
	require.True(t, o.accepted(second.way))
	require.True(t, o.accepted(first.way))
	require.False(t, o.dialled(first.onward))
	o.forget(first)
	o.forget(second)
	require.Empty(t, o.ways)
}
