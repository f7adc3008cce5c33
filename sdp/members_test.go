package sdp

import (
	"context"
	"fmt"
	"io"
	"net"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/listen"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"
)

// member opens a process of node i that owns no links. which distinguishes members
// of one node, since Fabrics of this process that name a fabric in the same words are
// one.
func member(t *testing.T, topology, backend string, i, which int) *Fabric {
	t.Helper()
	f, err := Open(memberSpec(t, topology, backend, i, which))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

func memberSpec(t *testing.T, topology, backend string, i, which int) string {
	return fmt.Sprintf("%s:%s?backend=%s&node=%d&window=1048576&spin=%dus", topology, fabrictest.Name(t), backend, i, 50+which)
}

func TestMembersDialAndAreDialled(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		for _, topology := range []string{"ring", "line", "mesh"} {
			t.Run(topology, func(t *testing.T) {
				const n = 4
				var hosts []*Fabric
				var addresses []string
				add := func(i int, f *Fabric) {
					hosts = append(hosts, f)
					addresses = append(addresses, fmt.Sprintf("node%d:%s", i, echoOn(t, f)))
				}
				add(1, member(t, topology, backend, 1, 1)) // before its owner
				for i := 1; i <= n; i++ {
					add(i, node(t, topology, backend, i, n))
				}
				add(1, member(t, topology, backend, 1, 2))
				add(3, member(t, topology, backend, 3, 1))
				for _, f := range hosts {
					for _, a := range addresses {
						echoed(t, f, a)
					}
				}
			})
		}
	})
}

func TestAMemberWithoutAnOwnerSaysSo(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		f := member(t, "ring", backend, 2, 1)
		err := dialUntil(t, f, "node1:7", "no process owns the links of node2: start one with nodes=N")
		require.ErrorIs(t, err, syscall.EHOSTUNREACH)
		// Within the host nothing is missing.
		other := member(t, "ring", backend, 2, 2)
		port := echoOn(t, other)
		echoed(t, f, "node2:"+port)
	})
}

func TestADialOfAMemberWaitsForTheOwner(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		server := node(t, "ring", backend, 1, 3)
		port := echoOn(t, server)
		f := member(t, "ring", backend, 2, 1)
		done := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			c, err := f.DialContext(ctx, "sdp", "node1:"+port)
			if err == nil {
				c.Close()
			}
			done <- err
		}()
		node(t, "ring", backend, 2, 3)
		require.NoError(t, <-done)
	})
}

func TestADialOfAMemberBeyondTheLastNodeFails(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		f := member(t, "ring", backend, 2, 1)
		done := make(chan error, 1)
		go func() { // only the owner tells it how many nodes there are
			ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
			defer cancel()
			_, err := f.DialContext(ctx, "sdp", "node4:7")
			done <- err
		}()
		time.Sleep(20 * time.Millisecond) // mostly the dial waits by now
		node(t, "ring", backend, 2, 3)
		err := <-done
		require.ErrorIs(t, err, syscall.EHOSTUNREACH)
		require.NotErrorIs(t, err, context.DeadlineExceeded)
		require.ErrorContains(t, err, `no node "node4" in this fabric, which has node1 to node3`)
	})
}

func TestOwnersAreReplaced(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		far := node(t, "ring", backend, 1, 3)
		farPort := echoOn(t, far)
		first := node(t, "ring", backend, 2, 3)
		server := member(t, "ring", backend, 2, 1)
		port := echoOn(t, server)
		echoed(t, far, "node2:"+port)

		// No process owns the links. What went through the owner ends.
		ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
		defer cancel()
		c, err := far.DialContext(ctx, "sdp", "node2:"+port)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, first.Close())
		_, err = c.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotEqual(t, io.EOF, err)

		// Another process takes over. The member is as it was.
		node(t, "ring", backend, 2, 3)
		echoed(t, far, "node2:"+port)
		echoed(t, server, "node1:"+farPort)
		_, err = Open(nodeSpec(t, "ring", backend, 2, 3) + "&spin=1us")
		require.ErrorIs(t, err, syscall.EADDRINUSE)
	})
}

// The frames of two members go up, over two links, and down.
func TestConnBetweenMembers(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		for i := 1; i <= 3; i++ {
			node(t, "line", backend, i, 3)
		}
		client, server := member(t, "line", backend, 1, 1), member(t, "line", backend, 3, 1)
		nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) { return pipeBetween(client, server, ":0") })
	})
}

// A port is found wherever it is, even after it has moved to another process.
func TestAPortMovesBetweenTheProcessesOfANode(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		far, owner := node(t, "ring", backend, 1, 2), node(t, "ring", backend, 2, 2)
		a, b := member(t, "ring", backend, 2, 1), member(t, "ring", backend, 2, 2)
		for _, f := range []*Fabric{a, owner, b, a} {
			_, err := far.Dial("sdp", "node2:77")
			require.ErrorIs(t, err, syscall.ECONNREFUSED)
			ln, err := f.Listen("sdp", ":77")
			require.NoError(t, err)
			for _, other := range []*Fabric{a, b, owner} {
				_, err := other.Listen("sdp", ":77")
				require.ErrorIs(t, err, syscall.EADDRINUSE)
			}
			for _, from := range []*Fabric{far, a, b, owner} {
				c, err := from.Dial("sdp", "node2:77")
				require.NoError(t, err)
				s, err := ln.Accept()
				require.NoError(t, err)
				require.Equal(t, "node2:77", c.RemoteAddr().String())
				require.Equal(t, c.LocalAddr().String(), s.RemoteAddr().String())
				require.Equal(t, from.OwnsLinks(), from == far || from == owner)
				c.Close()
				s.Close()
			}
			ln.Close()
		}
	})
}

// misleading is a host that names a process which holds no port.
type misleading struct {
	listen.Host
	process *int
}

func (m misleading) OtherHolder(int) int { return *m.process }

// An owner redirects dials for ever, or to a process that does not exist. It does
// not keep them.
func TestAnOwnerThatMisleadsADial(t *testing.T) { synctest.Test(t, anOwnerThatMisleadsADial) }

func anOwnerThatMisleadsADial(t *testing.T) {
	far, owner := node(t, "ring", "mem", 1, 2), node(t, "ring", "mem", 2, 2)
	self := owner.stack.fabric.Node().ID().Process()
	process := self
	owner.stack.listeners.Host = misleading{owner.stack.listeners.Host, &process}
	_, err := far.Dial("sdp", "node2:9")
	require.ErrorIs(t, err, syscall.EHOSTUNREACH)
	require.ErrorContains(t, err, "changed hands")
	process = self + 9
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = far.DialContext(ctx, "sdp", "node2:9")
	require.ErrorIs(t, err, syscall.EHOSTUNREACH)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
