package sdp

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/dial"
	"github.com/ntbnet/ntbnet/internal/inetdiag"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
)

// addressed opens two nodes of a line, which have addresses by option hostI.
func addressed(t *testing.T) (one, two *Fabric) {
	t.Helper()
	name := fabrictest.Name(t)
	var all []*Fabric
	for node := 1; node <= 2; node++ {
		f, err := Open(fmt.Sprintf("line:%s?backend=mem&node=%d&nodes=2&host1=192.0.2.1,2001:db8::1&host2=192.0.2.2", name, node))
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		all = append(all, f)
	}
	return all[0], all[1]
}

// dialled ends the connection of a dial, and returns its addresses, or the error.
func dialled(f *Fabric, d destination) (addresses string, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c, err := f.dial(ctx, d)
	if err != nil {
		return "", err
	}
	defer c.Close()
	return fmt.Sprint(c.LocalAddr().(*net.TCPAddr).IP, " ", c.RemoteAddr()), nil
}

// A connection by SDP reaches the listener that TCP would reach, and has the same addresses. A source address that
// the dialling node does not have is refused.
func TestANodeAnswersForItsTCPSockets(t *testing.T) {
	leak.Check(t)
	one, two := addressed(t)
	ln, err := two.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ours := serveName(ln, "ours")
	defer ours.stop()
	port := ln.Addr().(*net.TCPAddr).Port
	plain, err := net.Listen("tcp", fmt.Sprintf("127.0.0.2:%d", port))
	require.NoError(t, err)
	defer plain.Close()
	six, err := two.Listen("tcp6", fmt.Sprintf("[::1]:%d", port))
	require.NoError(t, err)
	ofSix := serveName(six, "six")
	defer ofSix.stop()
	sdpOnly, err := two.Listen("sdp", ":0")
	require.NoError(t, err)
	defer sdpOnly.Close()

	const source, source6 = "192.0.2.1", "2001:db8::1"
	for _, tc := range []struct {
		source, to string
		port       int
		want       string
		err        error
	}{
		{source, "127.0.0.1", port, "", nil},
		{source6, "::1", port, "", nil},
		{source, "127.0.0.2", port, "", syscall.ECONNREFUSED}, // another server's
		{source, "127.0.0.3", port, "", syscall.ECONNREFUSED},
		{source, "127.0.0.1", sdpOnly.Addr().(*Addr).Port, "", syscall.ECONNREFUSED}, // no TCP socket
		{source, "192.0.2.77", port, "", syscall.ECONNREFUSED},                       // not an address of the machine
		{"192.0.2.2", "127.0.0.1", port, "", dial.ErrUnknownSource},                  // of the listener's node
		{"192.0.2.3", "127.0.0.1", port, "", dial.ErrUnknownSource},
		{"127.0.0.1", "127.0.0.1", port, "", dial.ErrUnknownSource},
		{"::", "::1", port, "", dial.ErrUnknownSource},
	} {
		d := destination{host: 2, port: tc.port, tcp: true, asks: true, source: netip.MustParseAddr(tc.source), to: netip.MustParseAddr(tc.to)}
		got, err := dialled(one, d)
		require.ErrorIs(t, err, tc.err, "%+v", tc)
		if tc.err == nil {
			require.Equal(t, tc.source+" "+net.JoinHostPort(tc.to, fmt.Sprint(port)), got)
		}
		require.Empty(t, one.stack.tcpPorts.used)
	}
}

// A process of another node names a listener's socket, and says that it dials from this machine.
func TestASourceOfAnotherNodeIsNotThisMachines(t *testing.T) {
	leak.Check(t)
	one, two := addressed(t)
	ln, err := two.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ours := serveName(ln, "ours")
	defer ours.stop()
	raw, err := ln.(*TCPListener).SyscallConn()
	require.NoError(t, err)
	socket, err := inetdiag.SocketOf(raw)
	require.NoError(t, err)
	loopback := netip.MustParseAddr("127.0.0.1")
	d := destination{host: 2, port: ln.Addr().(*net.TCPAddr).Port, tcp: true, source: loopback, to: loopback}
	d.socket = inetdiag.Listener{Socket: socket, UID: os.Geteuid()}
	_, err = dialled(one, d)
	require.Error(t, err)
	d.source = netip.MustParseAddr("192.0.2.1")
	_, err = dialled(one, d)
	require.NoError(t, err)
}

func TestASilentNodeIsAskedOnceASecond(t *testing.T) {
	var s silence
	asks := func(now time.Duration, want bool) {
		t.Helper()
		require.Equal(t, want, s.mayAsk(now))
	}
	asks(0, true)
	asks(0, true) // it answers, as far as is known
	s.heard(false, time.Second)
	asks(time.Second, false)
	asks(2*time.Second-1, false)
	asks(2*time.Second, true)
	asks(2*time.Second, false) // that one has no answer yet
	asks(3*time.Second, true)
	s.heard(true, 3*time.Second)
	asks(3*time.Second, true)
	asks(3*time.Second, true)
}
