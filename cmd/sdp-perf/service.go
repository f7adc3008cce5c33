package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/ntbnet/ntbnet/internal/perf"
)

// Kinds of service of the second process.
const (
	commandService = "socket" // a perf.NewServer
	controlService = "control"
)

// service is a kind of server and where it listens.
type service struct {
	kind string
	at   perf.Endpoint
}

// String returns the argument by which the second process gets it, such as
// "http=sdp://localhost:0".
func (s service) String() string { return s.kind + "=" + s.at.String() }

// services returns services of one kind on several transports, on free ports and on
// a socket in dir.
func services(dir, kind string, transports []string) []service {
	addresses := map[string]string{
		"sdp":  "localhost:0",
		"tcp":  "127.0.0.1:0",
		"unix": filepath.Join(dir, kind),
	}
	list := make([]service, len(transports))
	for i, t := range transports {
		list[i] = service{kind, perf.Endpoint{Network: t, Address: addresses[t]}}
	}
	return list
}

// server is implemented by each kind of service. Serve returns nil after Close.
type server interface {
	Serve(net.Listener) error
	Close()
}

// servers are the servers of the second process, by service.
type servers map[string]server

func newServers() servers {
	commands := perf.NewServer()
	return servers{
		commandService: commands,
		controlService: commands,
	}
}

func (all servers) close() {
	for _, s := range all {
		s.Close()
	}
}

// serve listens, and serves in the background until close is called.
func (all servers) serve(ctx context.Context, arg string) (perf.Endpoint, error) {
	kind, endpoint, _ := strings.Cut(arg, "=")
	srv, ok := all[kind]
	if !ok {
		return perf.Endpoint{}, fmt.Errorf("unknown service %q", arg)
	}
	e, err := perf.ParseEndpoint(endpoint)
	if err != nil {
		return e, err
	}
	ln, err := listen(ctx, e)
	if err != nil {
		return e, err
	}
	go func() {
		if err := srv.Serve(ln); err != nil {
			fmt.Fprintln(os.Stderr, "sdp-perf: "+oneLine(err))
		}
	}()
	return whereItListens(ln, e), nil
}
