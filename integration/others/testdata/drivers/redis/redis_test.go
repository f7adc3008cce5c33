// Package redis tests that go-redis finds the connections of its pool that the server has
// closed. Its client is given as few excuses as there are: a command is not tried again.
package redis

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"example.org/drivers/relay"
)

func TestMain(m *testing.M) { relay.Main(m) }

// size is how many connections are in the pool, and times how often they are closed.
const size, times = 5, 10

// world is a server behind a relay, a client of that, and one of the server itself.
type world struct {
	server         *relay.Server
	relay          *relay.Relay
	client, direct *redis.Client
}

func newWorld(t *testing.T, protocol int) *world {
	dir := relay.Dir(t)
	socket := filepath.Join(dir, "s")
	w := &world{server: relay.NewServer(t, socket, relay.Tool(t, "redis-server"), "--port", "0",
		"--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no")}
	w.relay = relay.Start(t, socket)
	w.client = redis.NewClient(options("tcp", w.relay.Addr, protocol))
	t.Cleanup(func() { w.client.Close() })
	w.direct = redis.NewClient(options("unix", socket, protocol))
	t.Cleanup(func() { w.direct.Close() })
	return w
}

func options(network, addr string, protocol int) *redis.Options {
	return &redis.Options{
		Network: network, Addr: addr, Protocol: protocol,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
		MaxRetries:               -1,
		PoolSize:                 size,
		DialTimeout:              relay.Timeout,
		ReadTimeout:              relay.Timeout,
		WriteTimeout:             relay.Timeout,
		PoolTimeout:              relay.Timeout,
		DisableIdentity:          true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
}

// use uses each connection of the pool once, and as many as the pool takes. It returns how
// many commands failed.
func (w *world) use(t *testing.T) (failed int) {
	t.Helper()
	for range size {
		c := w.client.Conn()
		defer c.Close()
		if err := c.Incr(t.Context(), "n").Err(); err != nil {
			t.Log(err)
			failed++
		}
	}
	return failed
}

// staysGood has the connections of the pool closed by something, again and again. Each time
// the commands behind that must not fail.
func (w *world) staysGood(t *testing.T, times int, end func()) {
	t.Helper()
	failed := w.use(t)
	for range times {
		if n := w.client.PoolStats().IdleConns; n != size {
			t.Fatalf("%d connections in the pool", n)
		}
		end()
		failed += w.use(t)
	}
	if failed > 0 {
		t.Errorf("%d of %d commands failed", failed, (times+1)*size)
	}
	if n := w.client.PoolStats().StaleConns; failed == 0 && int(n) != times*size {
		t.Errorf("%d of %d connections were found to be stale", n, times*size)
	}
}

func protocols(t *testing.T, f func(t *testing.T, w *world)) {
	t.Run("RESP2", func(t *testing.T) { f(t, newWorld(t, 2)) })
	t.Run("RESP3", func(t *testing.T) { f(t, newWorld(t, 3)) })
}

func TestServerKillsConnections(t *testing.T) {
	protocols(t, func(t *testing.T, w *world) {
		w.staysGood(t, times, func() {
			n, err := w.direct.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Result()
			if err != nil || n != size {
				t.Fatal(n, err)
			}
			w.relay.WaitClosed(size)
		})
	})
}

func TestServerRestarts(t *testing.T) {
	protocols(t, func(t *testing.T, w *world) {
		w.staysGood(t, times, func() {
			w.server.Stop(t)
			w.relay.WaitClosed(size)
			w.server.Start(t)
		})
	})
}

// The process that holds the other ends is killed.
func TestRelayIsKilled(t *testing.T) {
	protocols(t, func(t *testing.T, w *world) { w.staysGood(t, times, w.relay.Restart) })
}

func TestServerClosesIdleConnections(t *testing.T) {
	protocols(t, func(t *testing.T, w *world) {
		if err := w.direct.ConfigSet(t.Context(), "timeout", "1").Err(); err != nil {
			t.Fatal(err)
		}
		w.staysGood(t, 1, func() { w.relay.WaitClosed(size) })
	})
}

// A message that nobody waits for has come on a connection of the pool.
func TestPushedMessagesDoNotMakeAConnectionStale(t *testing.T) {
	w := newWorld(t, 3)
	c := w.client.Conn()
	if err := c.Do(t.Context(), "CLIENT", "TRACKING", "ON", "BCAST").Err(); err != nil {
		t.Fatal(err)
	}
	c.Close()
	for range 100 {
		if err := w.direct.Incr(t.Context(), "n").Err(); err != nil {
			t.Fatal(err)
		}
		if err := w.client.Get(t.Context(), "n").Err(); err != nil {
			t.Fatal(err)
		}
	}
	if s := w.client.PoolStats(); s.StaleConns != 0 || s.Misses != 1 {
		t.Errorf("%+v", s)
	}
}

// A good connection is not taken for a stale one.
func TestGoodConnectionsStay(t *testing.T) {
	protocols(t, func(t *testing.T, w *world) {
		for range 200 {
			if failed := w.use(t); failed > 0 {
				t.Fatalf("%d commands failed", failed)
			}
		}
		if s := w.client.PoolStats(); s.StaleConns != 0 || s.Misses != size {
			t.Errorf("%+v", s)
		}
	})
}
