package proxy

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/sdp"
)

// testTimeout is how long a test waits for what must happen. No test waits for it to
// pass.
const testTimeout = 60 * time.Second

var networks = []string{networkTCP, networkUnix, networkSDP}

// testEnv is the environment of one test: an SDP host, a directory for sockets, and the
// log of its forwarders.
type testEnv struct {
	t      *testing.T
	fabric *sdp.Fabric
	dir    string
	log    logLines
}

var fabrics atomic.Int64

// newEnv makes a testEnv. It also checks that the test leaves nothing behind.
func newEnv(t *testing.T) *testEnv {
	t.Helper()
	leak.Check(t)
	fabric, err := sdp.Open(fmt.Sprintf("mem:proxy-test-%d-%d", os.Getpid(), fabrics.Add(1)))
	if errors.Is(err, ntb.ErrNotSupported) {
		t.Skipf("no SDP on this system: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := fabric.Close(); err != nil {
			t.Errorf("Fabric.Close: %v", err)
		}
	})
	// This is not t.TempDir, because a Unix socket's path must be short.
	dir, err := os.MkdirTemp("", "proxy")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return &testEnv{t: t, fabric: fabric, dir: dir}
}

// free returns an endpoint to listen on.
func (e *testEnv) free(network string) Endpoint {
	switch network {
	case networkUnix:
		return Endpoint{network, filepath.Join(e.dir, fmt.Sprintf("%d.sock", rand.Uint32()))}
	case networkSDP:
		return Endpoint{network, "localhost:0"}
	}
	return Endpoint{network, "127.0.0.1:0"}
}

// serverOn listens, as the target of a forwarder.
func (e *testEnv) serverOn(network string) (net.Listener, Endpoint) {
	e.t.Helper()
	at := e.free(network)
	ln, err := listen(context.Background(), &Map{Listen: at}, nil, e.fabric)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { ln.Close() })
	return ln, Endpoint{network, ln.Addr().String()}
}

// forward starts a forwarder of a map with the options of m. It is closed at the end of the test.
func (e *testEnv) forward(network string, target Endpoint, m Map) *Forwarder {
	e.t.Helper()
	m.Listen, m.Targets = e.free(network), []Endpoint{target}
	f, err := open(context.Background(), &m, env{fabric: e.fabric, log: e.log.logger()})
	if err != nil {
		e.t.Fatal(err)
	}
	served := make(chan error, 1)
	go func() { served <- f.Serve() }()
	e.t.Cleanup(func() {
		f.Close()
		if err := <-served; err != nil {
			e.t.Errorf("Serve: %v", err)
		}
	})
	return f
}

// dial returns a client of a forwarder.
func (e *testEnv) dial(at Endpoint) conn {
	e.t.Helper()
	c, err := e.tryDial(at)
	if err != nil {
		e.t.Fatal(err)
	}
	e.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(testTimeout))
	return c.(conn)
}

func (e *testEnv) tryDial(at Endpoint) (net.Conn, error) {
	if at.Network == networkSDP {
		return (&sdp.Dialer{Fabric: e.fabric, Timeout: testTimeout}).DialContext(context.Background(), at.Network, at.Address)
	}
	return net.DialTimeout(at.Network, at.Address, testTimeout)
}

// pair returns a client joined to a server through a new forwarder.
func (e *testEnv) pair(listen, target string) (client, server conn, f *Forwarder) {
	e.t.Helper()
	ln, at := e.serverOn(target)
	f = e.forward(listen, at, Map{})
	client = e.dial(f.Addr())
	server = accept(e.t, ln)
	eventually(e.t, "the two are joined", func() bool {
		return len(f.conns.open()) == 1
	})
	return client, server, f
}

// conn is what the connections of all networks implement.
type conn interface {
	net.Conn
	CloseWrite() error
}

func accept(t *testing.T, ln net.Listener) conn {
	t.Helper()
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(testTimeout))
	return c.(conn)
}

// eachPair runs a subtest for every pair of the networks given.
func eachPair(t *testing.T, networks []string, test func(t *testing.T, listen, target string)) {
	for _, l := range networks {
		for _, r := range networks {
			t.Run(l+" to "+r, func(t *testing.T) { test(t, l, r) })
		}
	}
}

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(testTimeout); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("did not happen in time: %s", what)
		}
	}
}

// isReset reports whether err means that a stream did not end in order.
func isReset(err error) bool {
	return errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// readToError reads until there is an error, io.EOF included.
func readToError(c net.Conn) error {
	buf := make([]byte, 64<<10)
	for {
		if _, err := c.Read(buf); err != nil {
			return err
		}
	}
}

// randomBytes returns the same n bytes for the same seed.
func randomBytes(seed uint64, n int) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	io.ReadFull(r, b)
	return b
}

// logLines collects what a forwarder logs.
type logLines struct {
	mu    sync.Mutex
	lines []string // guarded by mu
}

// logger returns a logger for all levels.
func (l *logLines) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func (l *logLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, string(line))
	return len(line), nil
}

func (l *logLines) all() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.lines...)
}
