package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/ntbnet/ntbnet/internal/perf"
	"github.com/ntbnet/ntbnet/sdp"
)

// nodeCommand is a node of a ring that another process measures. Its argument is the fabric.
const nodeCommand = "ring-node"

// nodePort is the port on which each node listens.
const nodePort = 7

func runRingNode(ctx context.Context, args []string, out io.Writer) error {
	ignoreSignals()
	if len(args) != 1 {
		return badInputf("%s is started by sdp-perf itself", nodeCommand)
	}
	// If the parent is dead, no other process removes what the nodes leave, also one that others' removal
	// kept from starting. The last node finds no other one that is attached.
	defer func() { _ = tryRemoveFabric(args[0]) }()
	answers := json.NewEncoder(out)
	m, stop, err := startNode(args[0])
	if err != nil {
		return errors.Join(answers.Encode(answer{Error: oneLine(err)}), err)
	}
	defer stop()
	return m.serve(ctx, answers)
}

// startNode joins the fabric and serves.
func startNode(name string) (m *measurer, stop func(), err error) {
	f, err := sdp.Open(name)
	if err != nil {
		return nil, nil, err
	}
	ln, err := f.Listen(sdp.Network, fmt.Sprintf(":%d", nodePort))
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	srv := perf.NewServer()
	go srv.Serve(ln) // Close ends it
	m = newMeasurer(
		func(to int) perf.Endpoint {
			return perf.Endpoint{Network: sdp.Network, Address: fmt.Sprintf("node%d:%d", to, nodePort)}
		},
		func(ctx context.Context, e perf.Endpoint) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			return f.DialContext(ctx, e.Network, e.Address)
		})
	return m, func() {
		m.close()
		srv.Close()
		f.Close()
	}, nil
}
