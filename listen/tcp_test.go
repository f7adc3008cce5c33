package listen

import (
	"context"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/dial"
	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
)

func addressesFrom(_ *link.Peer, h *hello.Hello) (a Addresses, why hello.Reason) {
	if h.From == 666 {
		why = hello.NotListening
	}
	return Addresses{
		Local:  netip.AddrPortFrom(netip.IPv6Loopback(), h.To),
		Remote: netip.AddrPortFrom(netip.AddrFrom16(h.TCP.Source), h.From),
	}, why
}

func (l *linked) dialTCP(from, to uint16, s Socket) (*bounce.Pair, error) {
	m := hello.Hello{Version: hello.Version, Network: hello.OverTCP, From: from, To: to, TCP: hello.TCP{Cookie: s.Cookie, Namespace: s.Namespace}}
	return l.far.dials.Dial(context.Background(), time.Now().Add(testTimeout), m)
}

// Sockets distinguish listeners of one port.
func TestASocketIsReachedByItsName(t *testing.T) {
	leak.Check(t)
	table := NewTable()
	k := newLink(t, table, nil)
	one, two := Socket{1, 10}, Socket{2, 10}
	first := table.Listen(7, Config{TCP: &TCP{Socket: one, Addresses: addressesFrom}})
	second := table.Listen(0, Config{TCP: &TCP{Socket: two, Addresses: addressesFrom}})
	for _, tc := range []struct {
		socket Socket
		at     *Listener
	}{{one, first}, {two, second}, {Socket{}, first}} {
		c, err := k.dialTCP(1024, 7, tc.socket)
		require.NoError(t, err)
		a := mustAccept(t, tc.at)
		require.EqualValues(t, 1024, a.Addresses.Remote.Port())
		table.Release(a.Addresses)
		a.Pair.Close()
		c.Close()
	}
	for _, s := range []Socket{{1, 11}, {3, 10}} {
		_, err := k.dialTCP(1024, 7, s)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
	}
	_, err := k.dialTCP(666, 7, one)
	require.ErrorIs(t, err, syscall.ECONNREFUSED, "addresses that cannot be")
	first.Close()
	_, err = k.dialTCP(1024, 7, one)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	second.Close()
	require.Empty(t, table.sockets)
	require.Empty(t, table.ports)
	require.Empty(t, table.used)
	noPairs(t, k)
}

// No two living connections have the same addresses.
func TestAddressesAreTakenOnce(t *testing.T) {
	leak.Check(t)
	table := NewTable()
	k := newLink(t, table, nil)
	l := table.Listen(7, Config{TCP: &TCP{Addresses: addressesFrom}})
	c, err := k.dialTCP(65535, 7, Socket{})
	require.NoError(t, err)
	_, err = k.dialTCP(65535, 7, Socket{})
	require.ErrorIs(t, err, dial.ErrAddressTaken)
	a := mustAccept(t, l)

	// A dialler of network "sdp" does not see the address, and gets another one.
	m := hello.Hello{Version: hello.Version, From: 65535, To: 7}
	d, err := k.far.dials.Dial(context.Background(), time.Now().Add(testTimeout), m)
	require.NoError(t, err)
	b := mustAccept(t, l)
	require.EqualValues(t, firstUserPort, b.Addresses.Remote.Port())

	a.Pair.Close()
	c.Close()
	_, err = k.dialTCP(65535, 7, Socket{})
	require.ErrorIs(t, err, dial.ErrAddressTaken, "it is not released")
	table.Release(a.Addresses)
	e, err := k.dialTCP(65535, 7, Socket{})
	require.NoError(t, err)
	l.Close() // Close resets the connection that waits
	isReset(t, e)
	b.Pair.Close()
	d.Close()
	table.Release(b.Addresses)
	require.Empty(t, table.used)
	noPairs(t, k)
}

// A stopped listener returns the connections that wait, and then none.
func TestAStoppedListenerIsDrained(t *testing.T) {
	leak.Check(t)
	table := NewTable()
	k := newLink(t, table, nil)
	l := table.Listen(7, Config{TCP: &TCP{Socket: Socket{1, 1}, Addresses: addressesFrom}})
	var waiting []*bounce.Pair
	for port := range uint16(3) {
		c, err := k.dialTCP(1024+port, 7, Socket{1, 1})
		require.NoError(t, err)
		waiting = append(waiting, c)
	}
	l.Stop()
	l.Stop()
	_, err := k.dialTCP(2000, 7, Socket{})
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	for _, c := range waiting {
		a := mustAccept(t, l)
		table.Release(a.Addresses)
		a.Pair.Close()
		c.Close()
	}
	returns(t, "Accept", func() {
		_, err := l.Accept()
		require.ErrorIs(t, err, ErrClosed)
	})
	require.NoError(t, l.Close())
	require.Empty(t, table.used)
	noPairs(t, k)
}
