package drivers

import (
	"context"
	"database/sql"
	"net"
	"os/exec"
	"os/user"
	"path/filepath"
	"testing"

	"github.com/go-sql-driver/mysql"
)

// mariaDB is a server, for all tests.
type mariaDB struct {
	*server
	direct *sql.DB // connections that no relay is between
}

func newMariaDB(t *testing.T) *mariaDB {
	t.Helper()
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	dir := shortDir(t)
	socket := filepath.Join(dir, "s")
	data, who := "--datadir="+filepath.Join(dir, "data"), "--user="+me.Username
	path := tool(t, "mariadbd")
	out, err := exec.Command(tool(t, "mariadb-install-db"), "--no-defaults", data, who,
		"--auth-root-authentication-method=normal", "--skip-test-db").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	s := &mariaDB{server: newServer(t, socket, path, "--no-defaults", data, who,
		"--socket="+socket, "--pid-file="+filepath.Join(dir, "pid"), "--skip-networking")}
	s.direct = open(t, "unix", socket)
	s.must(t, "CREATE DATABASE d")
	s.must(t, "CREATE TABLE d.t (n INT)")
	return s
}

// must has the server do something.
func (s *mariaDB) must(t *testing.T, command string, args ...any) {
	t.Helper()
	if _, err := s.direct.ExecContext(t.Context(), command, args...); err != nil {
		t.Fatal(err)
	}
}

func open(t *testing.T, network, addr string) *sql.DB {
	t.Helper()
	mysql.RegisterDialContext(network, func(ctx context.Context, addr string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, addr)
	})
	cfg := mysql.NewConfig()
	cfg.User, cfg.Net, cfg.Addr = "root", network, addr
	cfg.Logger = &mysql.NopLogger{}
	c, err := mysql.NewConnector(cfg)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(c)
	t.Cleanup(func() { db.Close() })
	db.SetMaxIdleConns(size)
	return db
}

// pool is a pool of connections to a relay.
type pool struct {
	relay *relay
	db    *sql.DB
	ids   map[int]bool // of the connections, as the server says them
}

// use uses each connection of the pool once, and as many as the pool keeps. It returns how
// many commands failed, and on how many connections that were not used before. A command is
// one that cannot be done twice, so that neither the driver nor database/sql tries again
// once it was sent.
func (p *pool) use(t *testing.T) (failed, fresh int) {
	t.Helper()
	before := p.ids
	p.ids = map[int]bool{}
	for range size {
		c, err := p.db.Conn(t.Context())
		if err == nil {
			defer c.Close()
			_, err = c.ExecContext(t.Context(), "INSERT INTO d.t VALUES (1)")
		}
		id := 0
		if err == nil {
			err = c.QueryRowContext(t.Context(), "SELECT CONNECTION_ID()").Scan(&id)
		}
		if err != nil {
			t.Log(err)
			failed++
			continue
		}
		p.ids[id] = true
		if !before[id] {
			fresh++
		}
	}
	return failed, fresh
}

// staysGood has the connections of the pool closed by something, again and again. Each time
// the commands behind that must not fail.
func (p *pool) staysGood(t *testing.T, times int, end func()) {
	t.Helper()
	failed, _ := p.use(t)
	for range times {
		if n := p.db.Stats().Idle; n != size {
			t.Fatalf("%d connections in the pool", n)
		}
		end()
		n, _ := p.use(t)
		failed += n
	}
	if failed > 0 {
		t.Errorf("%d of %d commands failed", failed, (times+1)*size)
	}
}

// go-sql-driver/mysql finds the connections of the pool that the server has closed.
func TestMariaDB(t *testing.T) {
	s := newMariaDB(t)
	run := func(name string, f func(t *testing.T, p *pool)) {
		t.Run(name, func(t *testing.T) {
			r := startRelay(t, s.socket)
			f(t, &pool{relay: r, db: open(t, "tcp", r.addr)})
		})
	}
	run("ServerKillsConnections", func(t *testing.T, p *pool) {
		p.staysGood(t, times, func() {
			for id := range p.ids {
				s.must(t, "KILL ?", id)
			}
			p.relay.waitClosed(size)
		})
	})
	run("ServerRestarts", func(t *testing.T, p *pool) {
		p.staysGood(t, times, func() {
			s.stop(t)
			p.relay.waitClosed(size)
			s.start(t)
		})
	})
	// The process that holds the other ends is killed.
	run("RelayIsKilled", func(t *testing.T, p *pool) { p.staysGood(t, times, p.relay.restart) })
	run("ServerClosesIdleConnections", func(t *testing.T, p *pool) {
		s.must(t, "SET GLOBAL wait_timeout = 1")
		defer s.must(t, "SET GLOBAL wait_timeout = DEFAULT")
		p.staysGood(t, 1, func() { p.relay.waitClosed(size) })
	})
	// A good connection is not taken for a stale one.
	run("GoodConnectionsStay", func(t *testing.T, p *pool) {
		p.use(t)
		for range 200 {
			if failed, fresh := p.use(t); failed > 0 || fresh > 0 {
				t.Fatalf("%d commands failed, %d connections are new", failed, fresh)
			}
		}
	})
}
