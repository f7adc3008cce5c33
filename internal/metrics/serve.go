package metrics

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
)

// CheckAddress returns an error unless an address is a port of loopback, or "unix:" and an absolute path. So others than
// this machine do not reach it.
func CheckAddress(address string) error {
	if path, ok := strings.CutPrefix(address, "unix:"); ok && filepath.IsAbs(path) {
		return unixsock.CheckPath(path)
	}
	host, port, err := net.SplitHostPort(address)
	a, bad := netip.ParseAddr(host)
	if err != nil || port == "" || host != "localhost" && (bad != nil || !a.IsLoopback()) {
		return fmt.Errorf("%q: want a port of loopback, as in 127.0.0.1:9477, or unix:/PATH", address)
	}
	return nil
}

// Listen listens on an address. A Unix socket is this user's alone.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return unixsock.ListenAs(ctx, path, unixsock.Rights{Mode: 0o600, UID: -1, GID: -1})
	}
	var lc net.ListenConfig
	return lc.Listen(ctx, "tcp", address)
}

// maxConnections is how many connections a server has at most. Others wait in the kernel, where they hold no descriptor of
// this process.
const maxConnections = 16

// Serve serves requests in a goroutine until Close of the server, one a connection. A client that is silent or does not
// read is cut.
func Serve(ln net.Listener, h http.Handler) *http.Server {
	s := &http.Server{Handler: h, ReadTimeout: 5 * time.Second, WriteTimeout: 10 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	s.SetKeepAlivesEnabled(false)
	go s.Serve(&limited{ln, make(chan struct{}, maxConnections), make(chan struct{})})
	return s
}

// limited is a listener that accepts no connection while maxConnections are open.
type limited struct {
	net.Listener
	open   chan struct{} // has an element for each of them
	closed chan struct{}
}

func (l *limited) Accept() (net.Conn, error) {
	select {
	case l.open <- struct{}{}:
	case <-l.closed:
		return nil, net.ErrClosed
	}
	c, err := l.Listener.Accept()
	if err != nil {
		<-l.open
		return nil, err
	}
	return &limitedConn{Conn: c, left: sync.OnceFunc(func() { <-l.open })}, nil
}

// Close is called once, by the server.
func (l *limited) Close() error {
	close(l.closed)
	return l.Listener.Close()
}

type limitedConn struct {
	net.Conn
	left func()
}

func (c *limitedConn) Close() error {
	defer c.left()
	return c.Conn.Close()
}

// Client returns a client of the server at an address. The host of a request's URL does not matter.
func Client(address string) *http.Client {
	return &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			if path, ok := strings.CutPrefix(address, "unix:"); ok {
				return unixsock.Dial(ctx, path)
			}
			var d net.Dialer
			return d.DialContext(ctx, "tcp", address)
		},
	}}
}
