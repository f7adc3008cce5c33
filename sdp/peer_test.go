package sdp

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// fabricsOfOneHost opens a fabric of memory, and one of this machine where there are such.
func fabricsOfOneHost(t *testing.T) map[string]*Fabric {
	t.Helper()
	all := map[string]*Fabric{}
	for kind, spec := range map[string]string{"mem": "mem:" + fabrictest.Name(t), "shm": "shm:" + fabrictest.Name(t)} {
		f, err := Open(spec)
		if errors.Is(err, ntb.ErrNotSupported) {
			continue
		}
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		all[kind] = f
	}
	return all
}

func TestConnectionsKnowTheUserAtTheOtherEnd(t *testing.T) {
	leak.Check(t)
	for kind, f := range fabricsOfOneHost(t) {
		asked := make(chan Peer, 1)
		ln, err := (&ListenConfig{Fabric: f, Allow: func(p Peer) error { asked <- p; return nil }}).Listen(t.Context(), "sdp", ":0")
		require.NoError(t, err)
		c, err := f.Dial("sdp", ln.Addr().String())
		require.NoError(t, err, kind)
		a, err := ln.Accept()
		require.NoError(t, err)
		want := <-asked
		require.Equal(t, []int{os.Getpid(), os.Geteuid(), os.Getegid()}, []int{want.PID, want.UID, want.GID}, kind)
		require.True(t, want.In(os.Getegid()))
		require.False(t, want.In(-1))
		for _, c := range []net.Conn{c, a} {
			p, ok := c.(*Conn).Peer()
			require.True(t, ok, kind)
			require.Equal(t, want, p, kind)
			require.NoError(t, c.Close())
		}
		require.NoError(t, ln.Close())
	}
}

func TestAUserThatIsNotAllowed(t *testing.T) {
	leak.Check(t)
	for kind, f := range fabricsOfOneHost(t) {
		before := f.Stats().Refused.Count
		ln, err := (&ListenConfig{Fabric: f, Allow: func(Peer) error { return errors.New("we are closed") }}).Listen(t.Context(), "sdp", ":0")
		require.NoError(t, err)
		for range 3 {
			_, err = f.Dial("sdp", ln.Addr().String())
			require.ErrorIs(t, err, syscall.EACCES, kind)
			require.ErrorContains(t, err, fmt.Sprintf("this process is uid %d, gid %d", os.Geteuid(), os.Getegid()))
		}
		refused := f.Stats().Refused
		require.EqualValues(t, before+3, refused.Count)
		require.Contains(t, refused.Last, "we are closed")
		require.Contains(t, refused.Last, fmt.Sprintf("pid %d, uid %d", os.Getpid(), os.Geteuid()))
		require.NoError(t, ln.Close())
	}
}

// What leads over other processes has no user that the kernel knows.
func TestUsersOfOtherNodesAreNotKnown(t *testing.T) {
	leak.Check(t)
	name := t.Name()
	open := func(node int) *Fabric {
		f, err := Open(fmt.Sprintf("ring:%s?backend=mem&nodes=3&node=%d", name, node))
		require.NoError(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	one, two := open(1), open(2)
	open(3)
	never := func(Peer) error { t.Error("Allow is asked about a user that is not known"); return nil }
	closed, err := (&ListenConfig{Fabric: one, Allow: never}).Listen(t.Context(), "sdp", ":7")
	require.NoError(t, err)
	defer closed.Close()
	_, err = two.Dial("sdp", "node1:7")
	require.ErrorIs(t, err, syscall.EACCES)
	require.Contains(t, one.Stats().Refused.Last, "ListenConfig.AllowUnknown accepts those")
	_, err = two.Dial("tcp", "node1:7")
	require.ErrorIs(t, err, syscall.EACCES)

	open8, err := (&ListenConfig{Fabric: one, Allow: never, AllowUnknown: true}).Listen(t.Context(), "sdp", ":8")
	require.NoError(t, err)
	defer open8.Close()
	c, err := two.Dial("sdp", "node1:8")
	require.NoError(t, err)
	defer c.Close()
	a, err := open8.Accept()
	require.NoError(t, err)
	defer a.Close()
	for _, c := range []net.Conn{c, a} {
		_, ok := c.(*Conn).Peer()
		require.False(t, ok)
	}
}

// A dial of network "tcp" that a listener refuses because of the user does not try TCP, to
// whatever address. A connection by TCP has no user.
func TestARefusedDialDoesNotTryTCP(t *testing.T) {
	leak.Check(t)
	f, ok := fabricsOfOneHost(t)["shm"]
	if !ok {
		t.Skip("no fabric of this machine")
	}
	allowed := errors.New("no")
	config := &ListenConfig{Fabric: f, Allow: func(Peer) error { return allowed }}
	ln, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	if f.Stats().Networks.ListenTCPOnly > 0 {
		t.Skip("the kernel does not look sockets up")
	}
	for _, address := range []string{"127.0.0.1:" + port, "localhost:" + port} {
		_, err = f.Dial("tcp", address)
		require.ErrorIs(t, err, syscall.EACCES, address)
		require.ErrorContains(t, err, "dial tcp", address)
	}
	n := f.Stats().Networks
	require.EqualValues(t, 2, n.DialSDPFailed)

	// By TCP.
	accepted := make(chan net.Conn, 1)
	go func() {
		c, err := ln.Accept()
		if err == nil {
			accepted <- c
		}
		close(accepted)
	}()
	plain, err := net.Dial("tcp", ln.Addr().String())
	if err == nil {
		require.NoError(t, plain.SetDeadline(time.Now().Add(time.Minute)))
		_, err = io.ReadAll(plain)
		plain.Close()
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Contains(t, f.Stats().Refused.Last, "ListenConfig.AllowTCP accepts those")
	require.NoError(t, ln.Close())
	require.Nil(t, <-accepted)

	config.AllowTCP = true
	ln, err = config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	plain2, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer plain2.Close()
	c, err := ln.Accept()
	require.NoError(t, err)
	require.IsType(t, (*net.TCPConn)(nil), c)
	require.NoError(t, c.Close())
}
