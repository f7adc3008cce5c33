package drivers

import (
	"context"
	"net"
	"path/filepath"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// world is a server behind a relay, a client of that, and one of the server itself. go-redis is to find the connections
// of its pool that the server has closed. It is given as few excuses as there are: a command is not tried again.
type world struct {
	server         *server
	relay          *relay
	client, direct *redis.Client
}

func newWorld(t *testing.T, protocol int) *world {
	dir := shortDir(t)
	socket := filepath.Join(dir, "s")
	w := &world{server: newServer(t, socket, tool(t, "redis-server"), "--port", "0",
		"--unixsocket", socket, "--dir", dir, "--save", "", "--appendonly", "no")}
	w.relay = startRelay(t, socket)
	w.client = redis.NewClient(options("tcp", w.relay.addr, protocol))
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
		DialTimeout:              timeout,
		ReadTimeout:              timeout,
		WriteTimeout:             timeout,
		PoolTimeout:              timeout,
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

func TestRedisServerKillsConnections(t *testing.T) {
	protocols(t, func(t *testing.T, w *world) {
		w.staysGood(t, times, func() {
			n, err := w.direct.ClientKillByFilter(t.Context(), "TYPE", "normal", "SKIPME", "yes").Result()
			if err != nil || n != size {
				t.Fatal(n, err)
			}
			w.relay.waitClosed(size)
		})
	})
}

func TestRedisServerRestarts(t *testing.T) {
	protocols(t, func(t *testing.T, w *world) {
		w.staysGood(t, times, func() {
			w.server.stop(t)
			w.relay.waitClosed(size)
			w.server.start(t)
		})
	})
}

// The process that holds the other ends is killed.
func TestRedisRelayIsKilled(t *testing.T) {
	protocols(t, func(t *testing.T, w *world) { w.staysGood(t, times, w.relay.restart) })
}

func TestRedisServerClosesIdleConnections(t *testing.T) {
	protocols(t, func(t *testing.T, w *world) {
		if err := w.direct.ConfigSet(t.Context(), "timeout", "1").Err(); err != nil {
			t.Fatal(err)
		}
		w.staysGood(t, 1, func() { w.relay.waitClosed(size) })
	})
}

// A message that nobody waits for has come on a connection of the pool.
func TestRedisPushedMessagesDoNotMakeAConnectionStale(t *testing.T) {
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
func TestRedisGoodConnectionsStay(t *testing.T) {
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
