package perf

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// serve starts a server for each network and returns their endpoints. wrap, if not
// nil, wraps each connection of the servers.
func serve(t *testing.T, wrap func(net.Conn) net.Conn, networks ...string) []Endpoint {
	t.Helper()
	srv := NewServer()
	t.Cleanup(srv.Close)
	var endpoints []Endpoint
	for _, network := range networks {
		address := "127.0.0.1:0"
		if network == "unix" {
			address = filepath.Join(t.TempDir(), "s")
		}
		ln, err := net.Listen(network, address)
		require.NoError(t, err)
		endpoints = append(endpoints, Endpoint{network, ln.Addr().String()})
		go srv.Serve(&wrappedListener{ln, wrap})
	}
	return endpoints
}

type wrappedListener struct {
	net.Listener
	wrap func(net.Conn) net.Conn
}

func (l *wrappedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil || l.wrap == nil {
		return c, err
	}
	return l.wrap(c), nil
}

func dialNet(ctx context.Context, e Endpoint) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, e.Network, e.Address)
}

func shortPlan(targets []Endpoint) Plan {
	return Plan{
		Targets: targets, RoundTripSize: 64, OneWaySize: 64 << 10,
		Rounds: 3, Connections: 1, Duration: 2 * time.Millisecond,
		VerifyBytes: 1 << 20, Dial: dialNet,
	}
}

// leavesNothing fails the test if goroutines or descriptors are left at its end. It
// must be called first, so that it checks last.
func leavesNothing(t *testing.T) {
	t.Helper()
	// The first descriptor of a process starts Go's poller, which stays.
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ln.Close()
	descriptors := func() int {
		entries, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			return 0 // on such a system only goroutines are checked
		}
		return len(entries)
	}
	goroutines, fds := runtime.NumGoroutine(), descriptors()
	t.Cleanup(func() {
		for range 500 {
			if runtime.NumGoroutine() <= goroutines && descriptors() <= fds {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		t.Errorf("left: %d goroutines, was %d; %d descriptors, was %d",
			runtime.NumGoroutine(), goroutines, descriptors(), fds)
	})
}

func TestRunMeasuresEveryTransportInEveryRound(t *testing.T) {
	leavesNothing(t)
	for _, connections := range []int{1, 3} {
		p := shortPlan(serve(t, nil, "tcp", "unix"))
		p.Connections = connections
		var steps []string
		p.Progress = func(s string) { steps = append(steps, s) }
		r, err := Run(context.Background(), p)
		require.NoError(t, err)

		assert.Equal(t, []string{"tcp", "unix"}, r.Verified.Transports)
		assert.GreaterOrEqual(t, r.Verified.BytesEachWay, uint64(1<<20))
		require.Len(t, r.Tests, 2)
		for _, test := range r.Tests {
			require.Len(t, test.Results, 2)
			for i, res := range test.Results {
				assert.Equal(t, p.Targets[i].Network, res.Transport)
				assert.Len(t, res.Rounds, 3)
				assert.Positive(t, res.Min)
				assert.Len(t, res.TimesFasterThan, 1)
				assert.Equal(t, test.Test == "round trip", res.P50 != nil && res.P99 != nil)
			}
		}
		// The measurements are interleaved, and not always in the same order.
		assert.Equal(t, []string{
			"connecting: tcp", "connecting: unix", "verifying: tcp", "verifying: unix",
			"round 1 of 3: round trip, 64 B: tcp", "round 1 of 3: round trip, 64 B: unix",
			"round 1 of 3: one way, 64 KiB: tcp", "round 1 of 3: one way, 64 KiB: unix",
			"round 2 of 3: round trip, 64 B: unix", "round 2 of 3: round trip, 64 B: tcp",
			"round 2 of 3: one way, 64 KiB: unix", "round 2 of 3: one way, 64 KiB: tcp",
		}, steps[:12])
	}
}

func TestOnlyOneTest(t *testing.T) {
	p := shortPlan(serve(t, nil, "tcp"))
	p.OneWaySize = 0
	r, err := Run(context.Background(), p)
	require.NoError(t, err)
	require.Len(t, r.Tests, 1)
	assert.Equal(t, "round trip", r.Tests[0].Test)
	assert.Empty(t, r.Tests[0].Results[0].TimesFasterThan)
}

// corrupt flips one bit of the byte at offset at of one direction.
type corrupt struct {
	net.Conn
	reads, writes       bool
	at, didRead, didPut int
}

func (c *corrupt) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if i := c.at - c.didRead; c.reads && i >= 0 && i < n {
		b[i] ^= 0x10
	}
	c.didRead += n
	return n, err
}

func (c *corrupt) Write(b []byte) (int, error) {
	if i := c.at - c.didPut; c.writes && i >= 0 && i < len(b) {
		b = append([]byte(nil), b...)
		b[i] ^= 0x10
	}
	n, err := c.Conn.Write(b)
	c.didPut += n
	return n, err
}

func TestOneWrongBitFailsTheVerifyingPass(t *testing.T) {
	const at = 777_777
	for _, c := range []struct {
		name string
		conn corrupt
		says string
	}{
		// Before the data, the server has read two commands, or written a reply.
		{"to the server", corrupt{reads: true, at: 2*commandSize + at}, "wrong data at the server: byte 777777"},
		{"to the client", corrupt{writes: true, at: replySize + at}, "wrong data from the server: byte 777777"},
	} {
		t.Run(c.name, func(t *testing.T) {
			leavesNothing(t)
			targets := serve(t, func(inner net.Conn) net.Conn {
				conn := c.conn
				conn.Conn = inner
				return &conn
			}, "tcp")
			_, err := Run(context.Background(), shortPlan(targets))
			require.ErrorContains(t, err, "tcp: verifying: "+c.says)
		})
	}
}

// swapped reads from one connection and writes to another.
type swapped struct {
	net.Conn
	r net.Conn
}

func (s swapped) Read(b []byte) (int, error) { return s.r.Read(b) }

func TestDataOfAnotherConnectionFailsTheVerifyingPass(t *testing.T) {
	targets := serve(t, nil, "tcp")
	var clients []*client
	a, err := dialNet(context.Background(), targets[0])
	require.NoError(t, err)
	b, err := dialNet(context.Background(), targets[0])
	require.NoError(t, err)
	clients = append(clients, newClient(swapped{a, b}, 1, 1), newClient(swapped{b, a}, 1, 1))
	defer closeAll([]*client{newClient(a, 1, 1), newClient(b, 1, 1)})
	assert.ErrorContains(t, verifyClients(clients, 1<<20), "wrong data from the server")
}

func TestAConnectionThatGoesAnotherWayIsNotMeasured(t *testing.T) {
	leavesNothing(t)
	p := shortPlan([]Endpoint{{"sdp", "localhost:1"}})
	tcp := serve(t, nil, "tcp")[0]
	p.Dial = func(ctx context.Context, _ Endpoint) (net.Conn, error) { return dialNet(ctx, tcp) }
	_, err := Run(context.Background(), p)
	assert.EqualError(t, err, "sdp: the connection goes by tcp")
}

func TestAnotherKindOfServerIsToldApart(t *testing.T) {
	leavesNothing(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	go func() {
		c, err := ln.Accept()
		if err == nil {
			c.Write([]byte("220 mail.example.com ESMTP, hello"))
			c.Read(make([]byte, commandSize))
			c.Close()
		}
	}()
	_, err = Run(context.Background(), shortPlan([]Endpoint{{"tcp", ln.Addr().String()}}))
	assert.ErrorIs(t, err, errNotPerf)
}

func TestBothSidesSayBothVersions(t *testing.T) {
	leavesNothing(t)
	t.Run("server", func(t *testing.T) {
		srv := NewServer()
		defer srv.Close()
		refused := make(chan error, 1)
		srv.Refused = func(err error) { refused <- err }
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		go srv.Serve(ln)
		conn, err := net.Dial("tcp", ln.Addr().String())
		require.NoError(t, err)
		defer conn.Close()
		c := newClient(conn, 64, 1)
		require.NoError(t, c.send(command{op: opHello, count: version + 1}))
		v, err := c.receive()
		require.NoError(t, err)
		assert.EqualValues(t, version, v)
		assert.ErrorContains(t, <-refused, fmt.Sprintf("version %d here, %d there", version, version+1))
		_, err = c.receive()
		assert.Error(t, err, "the connection is closed")
	})
	t.Run("client", func(t *testing.T) {
		near, far := net.Pipe()
		defer near.Close()
		defer far.Close()
		go func() {
			var head [commandSize]byte
			var reply [replySize]byte
			_, _ = io.ReadFull(far, head[:])
			putReply(&reply, version+1)
			_, _ = far.Write(reply[:])
		}()
		err := newClient(near, 64, 1).hello()
		assert.ErrorIs(t, err, errVersion)
		assert.ErrorContains(t, err, fmt.Sprintf("version %d here, %d there", version, version+1))
	})
}

func TestTheDialErrorComesThrough(t *testing.T) {
	broken := errors.New("broken")
	p := shortPlan([]Endpoint{{"tcp", "127.0.0.1:1"}})
	p.Dial = func(context.Context, Endpoint) (net.Conn, error) { return nil, broken }
	_, err := Run(context.Background(), p)
	assert.ErrorIs(t, err, broken)
}

func TestRunEndsWithItsContext(t *testing.T) {
	leavesNothing(t)
	enough := errors.New("enough")
	for _, step := range []string{
		"verifying: tcp", "round 1 of 3: round trip, 64 B: tcp", "round 2 of 3: one way, 64 KiB: tcp",
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		p := shortPlan(serve(t, nil, "tcp"))
		p.Progress = func(s string) {
			if s == step {
				cancel(enough)
			}
		}
		_, err := Run(ctx, p)
		assert.ErrorIs(t, err, enough, step)
	}
}

func TestRunEndsWithItsContextThoughTheServerIsSilent(t *testing.T) {
	leavesNothing(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0") // nothing accepts
	require.NoError(t, err)
	defer ln.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err = Run(ctx, shortPlan([]Endpoint{{"tcp", ln.Addr().String()}}))
	assert.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestAHangIsReported(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, silent := net.Pipe()
		defer silent.Close()
		tg := &target{clients: []*client{newClient(conn, 1, 1)}}
		err := tg.guard(context.Background(), 5*time.Second, func() error {
			_, err := tg.clients[0].receive()
			return err
		})
		assert.EqualError(t, err, "no end after 1m5s: it hangs")
	})
}

func TestServerCloseEndsConnectionsInUse(t *testing.T) {
	leavesNothing(t)
	srv := NewServer()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	conn, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	c := newClient(conn, 64, 1)
	defer conn.Close()
	require.NoError(t, c.hello())
	srv.Close()
	assert.NoError(t, <-served)
	assert.Error(t, c.hello())

	late, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, srv.Serve(late), "after Close it takes no listener")
	_, err = net.Dial("tcp", late.Addr().String())
	assert.Error(t, err, "and closes it")
}

func TestTheMeasuredLoopsDoNotAllocate(t *testing.T) {
	targets := serve(t, nil, "tcp")
	conn, err := dialNet(context.Background(), targets[0])
	require.NoError(t, err)
	defer conn.Close()
	const n = 5000
	c := newClient(conn, 64, 10*n)
	for name, loop := range map[string]func(size, n int) error{"echo": c.echo, "sample": c.sample, "sink": c.sink} {
		require.NoError(t, loop(64, 10), name) // the server allocates its buffer
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		require.NoError(t, loop(64, n), name)
		runtime.ReadMemStats(&after)
		// These are the allocations of client and server together. The rest of the
		// process may allocate a little.
		assert.Less(t, after.Mallocs-before.Mallocs, uint64(n/20), name)
	}
}
