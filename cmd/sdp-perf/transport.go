package main

import (
	"context"
	"net"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf"
	"github.com/ntbnet/ntbnet/internal/unixsock"
	"github.com/ntbnet/ntbnet/sdp"
)

// dialTimeout bounds one connection set-up on this machine. It is far longer than
// one takes.
const dialTimeout = 10 * time.Second

func dial(ctx context.Context, e perf.Endpoint) (net.Conn, error) {
	if e.Network == "sdp" {
		return (&sdp.Dialer{Timeout: dialTimeout}).DialContext(ctx, e.Network, e.Address)
	}
	if err := checkPath(e); err != nil {
		return nil, err
	}
	return (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, e.Network, e.Address)
}

func listen(ctx context.Context, e perf.Endpoint) (net.Listener, error) {
	if e.Network == "sdp" {
		return (&sdp.ListenConfig{}).Listen(ctx, e.Network, e.Address)
	}
	if err := checkPath(e); err != nil {
		return nil, err
	}
	return (&net.ListenConfig{}).Listen(ctx, e.Network, e.Address)
}

// checkPath returns an error if the path of a Unix socket is too long for one.
func checkPath(e perf.Endpoint) error {
	if e.Network != "unix" {
		return nil
	}
	return unixsock.CheckPath(e.Address)
}

// whereItListens returns the endpoint to dial for a listener that was requested as
// e: e's host, and the port that it got.
func whereItListens(ln net.Listener, e perf.Endpoint) perf.Endpoint {
	host, _, err := net.SplitHostPort(e.Address)
	if err != nil {
		return e // e is a path
	}
	_, port, err := net.SplitHostPort(ln.Addr().String())
	if err != nil {
		return e
	}
	if host == "" {
		host = "localhost"
	}
	return perf.Endpoint{Network: e.Network, Address: net.JoinHostPort(host, port)}
}
