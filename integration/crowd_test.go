//go:build linux

package integration

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	fabrics "github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// gathering is what a crowd has.
type gathering struct {
	Open  int    // connections or links
	Error string // of the next one
	Again bool   // errors.Is finds EAGAIN
}

// playCrowd opens connections and links, and keeps them, in the fabric of its argument:
//
//	connections ADDRESS N   opens connections until it has N, or one fails
//	links PORT N            opens links to the process that has a port, likewise
//	close                   closes a connection
func playCrowd(p *self) error {
	c := &crowd{fabric: p.args[0]}
	defer c.close()
	p.printf("ready")
	return p.answerAll(func(w []string) any { return c.do(w) })
}

type crowd struct {
	fabric string
	joined *sdp.Fabric
	conns  []net.Conn
	links  []*fabrics.Fabric // each with one
}

func (c *crowd) close() {
	for _, f := range c.links {
		f.Close()
	}
	if c.joined != nil {
		c.joined.Close()
	}
}

func (c *crowd) do(w []string) (g gathering) {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	var err error
	switch w[0] {
	case "close":
		err = c.conns[0].Close()
		c.conns = c.conns[1:]
	case "connections":
		n, _ := strconv.Atoi(w[2])
		for err == nil && len(c.conns) < n {
			err = c.dial(ctx, w[1])
		}
		g.Open = len(c.conns)
	case "links":
		port, _ := strconv.Atoi(w[1])
		n, _ := strconv.Atoi(w[2])
		for err == nil && len(c.links) < n {
			err = c.link(ctx, port)
		}
		g.Open = len(c.links)
	}
	if err != nil {
		g.Error, g.Again = err.Error(), errors.Is(err, syscall.EAGAIN)
	}
	return g
}

func (c *crowd) dial(ctx context.Context, address string) (err error) {
	if c.joined == nil {
		if c.joined, err = sdp.Open(c.fabric); err != nil {
			return err
		}
	}
	conn, err := c.joined.DialContext(ctx, "sdp", address)
	if err == nil {
		c.conns = append(c.conns, conn)
	}
	return err
}

// link joins the fabric once more, and makes a link from there.
func (c *crowd) link(ctx context.Context, port int) error {
	spec, err := spec.Parse(c.fabric + "?window=131072")
	if err != nil {
		return err
	}
	f, err := fabrics.Open(spec, func(*fabrics.Fabric) {})
	if err != nil {
		return err
	}
	id, ok, err := f.Holder(port)
	if err == nil && !ok {
		err = fmt.Errorf("nobody holds port %d", port)
	}
	if err == nil {
		_, err = f.Peer(ctx, id, nil)
	}
	if err != nil {
		f.Close()
		return err
	}
	c.links = append(c.links, f)
	return nil
}

// gathers has a crowd open something.
func (p *peer) gathers(format string, args ...any) (g gathering) {
	p.t.Helper()
	p.askFor(fmt.Sprintf(format, args...), &g)
	return g
}

// startCrowd starts a crowd of a user, or of root.
func startCrowd(t *testing.T, exe, fabric string, uid int) *peer {
	t.Helper()
	var options []peerOption
	if uid != 0 {
		options = append(options, asUser(exe, uid), inGroups(inShop))
	}
	p := startPeer(t, "crowd", []string{fabric}, options...)
	require.Equal(t, "ready", p.readLine())
	return p
}

// warnings collects what is logged until the test ends.
func warnings(t *testing.T) func() string {
	t.Helper()
	var mu sync.Mutex
	var text strings.Builder
	old := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(writerFunc(func(p []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return text.Write(p)
	}), nil)))
	t.Cleanup(func() { slog.SetDefault(old) })
	return func() string {
		mu.Lock()
		defer mu.Unlock()
		return text.String()
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// holdAll listens on a port of a fabric, and keeps each connection until its other side ends.
func holdAll(t *testing.T, f *sdp.Fabric) (address string) {
	t.Helper()
	ln, err := f.Listen("sdp", "localhost:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				io.Copy(io.Discard, c)
				c.Close()
			})
		}
	})
	t.Cleanup(func() {
		ln.Close()
		wg.Wait()
	})
	return ln.Addr().String()
}

// The processes of another user may have so many connections to this one, and no more. Those of
// this user, and of a third one, are not in their way.
func TestConnectionsOfAnotherUserAreLimited(t *testing.T) {
	const limit = 4096 // as docs/fabrics.md says
	dir, exe := shop(t)
	logged := warnings(t)
	f, err := sdp.Open("shm:" + dir)
	require.NoError(t, err)
	defer f.Close()
	address := holdAll(t, f)
	b, again := startCrowd(t, exe, "shm:"+dir, userB), startCrowd(t, exe, "shm:"+dir, userB)
	require.Equal(t, gathering{Open: 96}, again.gathers("connections %s 96", address))
	g := b.gathers("connections %s %d", address, limit)
	require.Equal(t, limit-96, g.Open, g.Error)
	require.True(t, g.Again, g.Error)
	require.Contains(t, g.Error, "as many connections of this user as it takes of another user: resource temporarily unavailable")
	require.Equal(t, 1, strings.Count(logged(), "a process was refused"), logged())
	require.Contains(t, logged(), fmt.Sprintf("pid %d, uid %d", b.cmd.Process.Pid, userB))
	require.Contains(t, logged(), fmt.Sprintf("may have %d open to this one", limit))
	require.True(t, again.gathers("connections %s 97", address).Again)
	for _, uid := range []int{userA, 0} {
		other := startCrowd(t, exe, "shm:"+dir, uid)
		require.Equal(t, gathering{Open: 10}, other.gathers("connections %s 10", address))
		other.end()
	}
	// One that has ended makes room for another.
	require.Equal(t, gathering{}, again.gathers("close"))
	until(t, "a connection has ended here too", func() bool {
		return again.gathers("connections %s 96", address) == gathering{Open: 96}
	})
	again.end()
	b.end()
	require.NoError(t, f.Close())
}

// The same for links, each of which takes memory, descriptors and goroutines.
func TestLinksOfAnotherUserAreLimited(t *testing.T) {
	const limit = 256 // as docs/fabrics.md says
	dir, exe := shop(t)
	logged := warnings(t)
	f, err := sdp.Open("shm:" + dir + "?window=131072")
	require.NoError(t, err)
	defer f.Close()
	ln, err := f.Listen("sdp", "localhost:0")
	require.NoError(t, err)
	defer ln.Close()
	port := ln.Addr().(*sdp.Addr).Port
	b := startCrowd(t, exe, "shm:"+dir, userB)
	g := b.gathers("links %d %d", port, limit+1)
	require.Equal(t, limit, g.Open, g.Error)
	require.True(t, g.Again, g.Error)
	require.Contains(t, g.Error, fmt.Sprintf("uid %d: too many links: a process takes %d of another user", userB, limit))
	require.Equal(t, 1, strings.Count(logged(), "a process was refused"), logged())
	require.Contains(t, logged(), g.Error[strings.Index(g.Error, "pid"):strings.Index(g.Error, ": resource")])
	for _, uid := range []int{userA, 0} {
		other := startCrowd(t, exe, "shm:"+dir, uid)
		require.Equal(t, gathering{Open: 10}, other.gathers("links %d 10", port))
		other.end()
	}
	b.end()
	until(t, "the links have ended here too", func() bool { return f.Stats().Links == 0 })
	b = startCrowd(t, exe, "shm:"+dir, userB)
	until(t, "their places are free", func() bool {
		return b.gathers("links %d 10", port) == gathering{Open: 10}
	})
	b.end()
}
