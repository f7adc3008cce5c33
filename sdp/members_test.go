package sdp

import (
	"context"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// member opens a process of node i that owns no links. which tells members of one
// node apart: Hosts of this process that name a fabric by the same words are one.
func member(t *testing.T, topology, backend string, i, which int) *Host {
	t.Helper()
	h, err := Open(memberSpec(t, topology, backend, i, which))
	require.NoError(t, err)
	t.Cleanup(func() { h.Close() })
	return h
}

func memberSpec(t *testing.T, topology, backend string, i, which int) string {
	return fmt.Sprintf("%s:sdp-%s-%s?backend=%s&node=%d&window=1048576&spin=%dus", topology, nameOf(t), backend, backend, i, 50+which)
}

func TestMembersDialAndAreDialled(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		for _, topology := range []string{"ring", "line", "mesh"} {
			t.Run(topology, func(t *testing.T) {
				const n = 4
				var hosts []*Host
				var addresses []string
				add := func(i int, h *Host) {
					hosts = append(hosts, h)
					addresses = append(addresses, fmt.Sprintf("node%d:%s", i, echoOn(t, h)))
				}
				add(1, member(t, topology, backend, 1, 1)) // before its owner
				for i := 1; i <= n; i++ {
					add(i, node(t, topology, backend, i, n))
				}
				add(1, member(t, topology, backend, 1, 2))
				add(3, member(t, topology, backend, 3, 1))
				for _, h := range hosts {
					for _, a := range addresses {
						echoed(t, h, a)
					}
				}
			})
		}
	})
}

func TestAMemberWithoutAnOwnerSaysSo(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		h := member(t, "ring", backend, 2, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := h.DialContext(ctx, "sdp", "node1:7")
		require.ErrorIs(t, err, syscall.EHOSTUNREACH)
		require.ErrorContains(t, err, "no process owns the links of node2: start one with nodes=N")
		// Within the host nothing is missing.
		other := member(t, "ring", backend, 2, 2)
		port := echoOn(t, other)
		echoed(t, h, "node2:"+port)
	})
}

func TestADialOfAMemberWaitsForTheOwner(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		server := node(t, "ring", backend, 1, 3)
		port := echoOn(t, server)
		h := member(t, "ring", backend, 2, 1)
		done := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			c, err := h.DialContext(ctx, "sdp", "node1:"+port)
			if err == nil {
				c.Close()
			}
			done <- err
		}()
		node(t, "ring", backend, 2, 3)
		require.NoError(t, <-done)
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

		// Nobody owns the links: what went through the owner ends.
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		c, err := far.DialContext(ctx, "sdp", "node2:"+port)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, first.Close())
		_, err = c.Read(make([]byte, 1))
		require.Error(t, err)
		require.NotEqual(t, io.EOF, err)

		// Another process takes over: the member is as it was.
		node(t, "ring", backend, 2, 3)
		echoed(t, far, "node2:"+port)
		echoed(t, server, "node1:"+farPort)
		_, err = Open(nodeSpec(t, "ring", backend, 2, 3) + "&spin=1us")
		require.ErrorIs(t, err, syscall.EADDRINUSE)
	})
}
