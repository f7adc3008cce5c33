package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf"
	"github.com/ntbnet/ntbnet/internal/perf/hops"
	"github.com/ntbnet/ntbnet/sdp"
)

// nodeCommand is a node of a ring that another process measures. Its argument is
// the fabric. It reads ringAsks from its standard input, one to a line, and writes
// a ringAnswer for each, until its input ends.
const nodeCommand = "ring-node"

// nodePort is the port on which each node listens.
const nodePort = 7

// ringAsk is a task. All nodes begin it at the given time, so that they begin
// together. Without a Duration the connection is made and no more.
type ringAsk struct {
	hops.Task
	Begin time.Time
}

type ringAnswer struct {
	Outcome hops.Outcome
	Error   string
}

// ringNode is a node of the ring: this process.
type ringNode struct {
	fabric *sdp.Fabric
	groups map[int]*perf.Group // by the node at the other end
}

func runRingNode(ctx context.Context, args []string, out io.Writer) error {
	ignoreSignals()
	if len(args) != 1 {
		return badInputf("%s is started by sdp-perf itself", nodeCommand)
	}
	n := &ringNode{groups: map[int]*perf.Group{}}
	answers := json.NewEncoder(out)
	stop, err := n.start(args[0])
	if err != nil {
		return errors.Join(answers.Encode(ringAnswer{Error: oneLine(err)}), err)
	}
	defer stop()
	if err := answers.Encode(ringAnswer{}); err != nil {
		return err
	}
	for asks := json.NewDecoder(os.Stdin); ; {
		var ask ringAsk
		if err := asks.Decode(&ask); err != nil {
			return nil // the parent has ended
		}
		if err := answers.Encode(n.do(ctx, ask)); err != nil {
			return err
		}
	}
}

// start joins the fabric and serves.
func (n *ringNode) start(fabric string) (stop func(), err error) {
	if n.fabric, err = sdp.Open(fabric); err != nil {
		return nil, err
	}
	ln, err := n.fabric.Listen(sdp.Network, fmt.Sprintf(":%d", nodePort))
	if err != nil {
		return nil, errors.Join(err, n.fabric.Close())
	}
	srv := perf.NewServer()
	go srv.Serve(ln) // Close ends it
	return func() {
		for _, g := range n.groups {
			g.Close()
		}
		srv.Close()
		n.fabric.Close()
		// If the parent is dead, no other process removes what the nodes leave. The
		// last node finds no other one that is attached.
		_ = tryRemoveFabric(fabric)
	}, nil
}

func (n *ringNode) do(ctx context.Context, ask ringAsk) ringAnswer {
	o, err := n.measure(ctx, ask)
	if err != nil {
		return ringAnswer{Error: oneLine(err)}
	}
	return ringAnswer{Outcome: o}
}

// maxRoundTrips is how many single round trips are timed.
const maxRoundTrips = 20000

func (n *ringNode) measure(ctx context.Context, ask ringAsk) (o hops.Outcome, err error) {
	g := n.groups[ask.To]
	if g == nil {
		e := perf.Endpoint{Network: sdp.Network, Address: fmt.Sprintf("node%d:%d", ask.To, nodePort)}
		g, err = perf.Connect(ctx, e, 1, 64<<10, func(ctx context.Context, e perf.Endpoint) (net.Conn, error) {
			ctx, cancel := context.WithTimeout(ctx, dialTimeout)
			defer cancel()
			return n.fabric.DialContext(ctx, e.Network, e.Address)
		})
		if err != nil {
			return o, err
		}
		g.TakeSamples(maxRoundTrips)
		n.groups[ask.To] = g
	}
	if ask.Duration == 0 {
		return o, nil
	}
	time.Sleep(time.Until(ask.Begin))
	f, err := g.Slice(ctx, ask.Test, ask.Size, ask.Duration)
	return hops.Outcome{Value: f.Value, P50: f.P50, P99: f.P99}, err
}
