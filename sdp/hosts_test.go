package sdp

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"
)

// node opens one node of a fabric in which all nodes are in this process.
func node(t *testing.T, topology, backend string, i, n int) *Fabric {
	t.Helper()
	f, err := Open(nodeSpec(t, topology, backend, i, n))
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// nodes opens all nodes of a fabric. Traffic between nodes within this process is
// recorded.
func nodes(t *testing.T, topology, backend string, n int) (hosts []*Fabric) {
	t.Helper()
	if backend == "mem" {
		return recordedNodes(t, topology, n, "")
	}
	for i := 1; i <= n; i++ {
		hosts = append(hosts, node(t, topology, backend, i, n))
	}
	return hosts
}

func nodeSpec(t *testing.T, topology, backend string, i, n int) string {
	return fmt.Sprintf("%s:%s?backend=%s&node=%d&nodes=%d&window=1048576", topology, fabrictest.Name(t), backend, i, n)
}

// onBackends runs f with each backend for links within one process.
func onBackends(t *testing.T, f func(t *testing.T, backend string)) {
	backends := []string{"mem"}
	if runtime.GOOS == "linux" {
		backends = append(backends, "shm")
	}
	for _, b := range backends {
		t.Run(b, func(t *testing.T) {
			leak.Check(t)
			f(t, b)
		})
	}
}

// echoOn sends back what arrives on every connection of a host, until both ends are
// closed.
func echoOn(t *testing.T, f *Fabric) (port string) {
	t.Helper()
	ln, err := f.Listen("sdp", ":0")
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	t.Cleanup(func() { ln.Close(); <-done })
	_, port, err = net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	return port
}

// echoed sends a message over a new connection, half-closes it, and wants the
// message back.
func echoed(t *testing.T, f *Fabric, address string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	c, err := f.DialContext(ctx, "sdp", address)
	require.NoError(t, err, address)
	defer c.Close()
	c.SetDeadline(time.Now().Add(60 * time.Second))
	_, err = io.WriteString(c, "to "+address)
	require.NoError(t, err)
	require.NoError(t, c.(*Conn).CloseWrite())
	b, err := io.ReadAll(c)
	require.NoError(t, err)
	require.Equal(t, "to "+address, string(b))
	require.Equal(t, address, c.RemoteAddr().String())
}

func TestNodesDialEachOtherByName(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		for _, topology := range []string{"ring", "line", "mesh"} {
			for n := 2; n <= 5; n++ {
				t.Run(fmt.Sprintf("%s of %d", topology, n), func(t *testing.T) {
					hosts := nodes(t, topology, backend, n)
					var ports []string
					for _, f := range hosts {
						ports = append(ports, echoOn(t, f))
					}
					for _, f := range hosts {
						for j, port := range ports {
							echoed(t, f, fmt.Sprintf("node%d:%s", j+1, port))
						}
					}
				})
			}
		}
	})
}

func TestADialWaitsForANodeThatStartsLater(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		first := node(t, "ring", backend, 1, 3)
		dialled := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
			defer cancel()
			c, err := first.DialContext(ctx, "sdp", "node2:7")
			if err == nil {
				c.Close()
			}
			dialled <- err
		}()
		runtime.Gosched()
		second := node(t, "ring", backend, 2, 3)
		// Nothing listens there. The answer of the other node shows that the link
		// is up.
		require.ErrorIs(t, <-dialled, syscall.ECONNREFUSED)
		port := echoOn(t, second)
		echoed(t, first, "node2:"+port)

		// A node that ends and starts again is found again.
		second.Close()
		second = node(t, "ring", backend, 2, 3)
		port = echoOn(t, second)
		echoed(t, first, "node2:"+port)
	})
}

func TestAddressesOfNodes(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		f, other := node(t, "ring", backend, 2, 3), node(t, "ring", backend, 3, 3)
		port := echoOn(t, f)
		for _, name := range []string{"localhost", "node2", "NODE2.", "2", "127.0.0.1", ""} {
			c, err := f.Dial("sdp", net.JoinHostPort(name, port))
			require.NoError(t, err, name)
			require.Equal(t, "node2:"+port, c.RemoteAddr().String())
			c.Close()
		}
		for _, name := range []string{"node2", "2"} {
			c, err := other.Dial("tcp", net.JoinHostPort(name, port))
			require.NoError(t, err, name)
			require.IsType(t, (*Conn)(nil), c)
			require.Equal(t, "[fe80::2%node2]:"+port, c.RemoteAddr().(*net.TCPAddr).String())
			host, _, err := net.SplitHostPort(c.LocalAddr().(*net.TCPAddr).String())
			require.NoError(t, err)
			require.Equal(t, "fe80::3%node3", host)
			// The address can be dialled.
			for _, network := range []string{"tcp", "sdp"} {
				again, err := other.Dial(network, c.RemoteAddr().String())
				require.NoError(t, err, network)
				again.Close()
			}
			c.Close()
		}
		both, err := f.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		_, tcpPort, err := net.SplitHostPort(both.Addr().String())
		require.NoError(t, err)
		for _, name := range []string{"node2", "fe80::2%node2"} {
			c, err := other.Dial("tcp", net.JoinHostPort(name, tcpPort))
			require.NoError(t, err)
			s, err := both.Accept()
			require.NoError(t, err)
			require.Equal(t, c.LocalAddr().(*net.TCPAddr).String(), s.RemoteAddr().(*net.TCPAddr).String())
			require.Equal(t, both.Addr().String(), s.LocalAddr().(*net.TCPAddr).String())
			c.Close()
			s.Close()
		}
		c, err := f.Dial("tcp", both.Addr().String())
		require.NoError(t, err)
		require.IsType(t, (*Conn)(nil), c, "within the node")
		require.Equal(t, both.Addr().String(), c.RemoteAddr().String())
		c.Close()
		both.Close()
		ln, err := f.Listen("sdp", "node2:0")
		require.NoError(t, err)
		c, err = other.Dial("sdp", ln.Addr().String())
		require.NoError(t, err)
		s, err := ln.Accept()
		require.NoError(t, err)
		require.Equal(t, c.LocalAddr().String(), s.RemoteAddr().String())
		require.Equal(t, c.RemoteAddr().String(), s.LocalAddr().String())
		s.Close()
		c.Close()
		ln.Close()

		_, err = f.Listen("sdp", "node3:0")
		require.ErrorIs(t, err, syscall.EADDRNOTAVAIL)
		for _, name := range []string{"node4", "4", "node0", "node", "192.0.2.1"} {
			_, err = f.Dial("sdp", net.JoinHostPort(name, port))
			require.ErrorIs(t, err, syscall.EHOSTUNREACH, name)
			require.ErrorContains(t, err, "node1 to node3", name)
		}
		_, err = f.Dial("sdp", "node3:1")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		_, err = f.Dial("tcp", "node3:1")
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.EqualValues(t, 1, f.Stats().Networks.DialSDPFailed)

		// Node 1 does not run.
		err = dialUntil(t, f, "node1:1", "node1 is not there")
		require.ErrorIs(t, err, syscall.EHOSTUNREACH)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// dialUntil dials with a limit that doubles, until the error has the expected text. Before
// that, the limit may end too early for it.
func dialUntil(t *testing.T, f *Fabric, address, text string) error {
	t.Helper()
	for limit := 50 * time.Millisecond; ; limit *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		_, err := f.DialContext(ctx, "sdp", address)
		cancel()
		require.Error(t, err)
		if strings.Contains(err.Error(), text) {
			return err
		}
		require.Less(t, limit, 30*time.Second, "%v; want %q", err, text)
	}
}

func TestPortsBelongToTheNode(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		a, b := node(t, "ring", backend, 1, 2), node(t, "ring", backend, 2, 2)
		port := echoOn(t, a)
		ln, err := b.Listen("sdp", ":"+port)
		require.NoError(t, err, "the same port of another node")
		ln.Close()
		_, err = a.Listen("sdp", ":"+port)
		require.ErrorIs(t, err, syscall.EADDRINUSE)
	})
}

// A line of five has nodes at every distance up to four.
func TestConnOverSeveralHops(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		hosts := nodes(t, "line", backend, 5)
		for _, hops := range []int{1, 2, 4} {
			t.Run(fmt.Sprintf("%d hops", hops), func(t *testing.T) {
				nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) { return pipeBetween(hosts[0], hosts[hops], ":0") })
			})
		}
	})
}

// cables are the ends of links that were made, as [Devices.Wrap] gets them.
type cables struct {
	mu  sync.Mutex
	all []ntb.Device // guarded by mu
}

func (c *cables) add(a, b ntb.Device) (ntb.Device, ntb.Device) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = append(c.all, a)
	return a, b
}

// cut takes one of the links down that are up, or none if there is none, and returns how many that were.
func (c *cables) cut(which int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all = slices.DeleteFunc(c.all, func(d ntb.Device) bool { return !d.LinkUp() })
	if len(c.all) > 0 {
		c.all[which%len(c.all)].Disable()
	}
	return min(len(c.all), 1)
}

// With failover, connections of neighbours and of other nodes go on when links are
// cut and made again.
func TestConnectionsOutliveLinks(t *testing.T) {
	onBackends(t, func(t *testing.T, backend string) {
		var hosts []*Fabric
		links := make([]cables, 2) // of nodes 1 and 3
		for i := 1; i <= 4; i++ {
			f, err := OpenWith(nodeSpec(t, "ring", backend, i, 4)+"&failover=1", Devices{Wrap: func(a, b ntb.Device) (ntb.Device, ntb.Device) {
				if i%2 == 0 {
					return a, b
				}
				return links[i/2].add(a, b)
			}})
			require.NoError(t, err)
			t.Cleanup(func() { f.Close() })
			hosts = append(hosts, f)
		}
		for _, to := range []int{2, 3} {
			ln, err := hosts[to-1].Listen("sdp", ":0")
			require.NoError(t, err)
			c, err := hosts[0].Dial("sdp", ln.Addr().String())
			require.NoError(t, err)
			s, err := ln.Accept()
			require.NoError(t, err)
			ln.Close()
			for _, c := range []net.Conn{c, s} {
				c.SetDeadline(time.Now().Add(60 * time.Second))
			}
			const size = 16 << 20
			sent := make(chan error, 1)
			go func() {
				_, err := io.CopyN(c, rand.NewChaCha8([32]byte{}), size)
				c.(*Conn).CloseWrite()
				sent <- err
			}()
			// After every part that arrives, a link of either way is cut.
			want, got := rand.NewChaCha8([32]byte{}), make([]byte, size/16)
			part := make([]byte, len(got))
			cuts := 0
			for i := range 16 {
				_, err := io.ReadFull(s, got)
				require.NoError(t, err, "after %d cuts", cuts)
				want.Read(part)
				require.True(t, bytes.Equal(part, got), "wrong bytes after %d cuts", cuts)
				cuts += links[i/2%2].cut(i)
			}
			require.NoError(t, <-sent)
			rest, err := io.ReadAll(s)
			require.NoError(t, err)
			require.Empty(t, rest)
			require.Positive(t, cuts)
			t.Logf("%d cuts to node %d", cuts, to)
			c.Close()
			s.Close()
		}
	})
}
