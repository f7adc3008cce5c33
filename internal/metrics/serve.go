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

// Serve serves requests in a goroutine until Close of the server.
func Serve(ln net.Listener, h http.Handler) *http.Server {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	go s.Serve(ln)
	return s
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
