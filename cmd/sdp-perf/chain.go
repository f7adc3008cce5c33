package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/perf"
	"github.com/ntbnet/ntbnet/internal/perf/hops"
)

// verifyChain is how many bytes go each way through a chain and are checked before it is
// measured.
const verifyChain = 1 << 20

// startChain starts a chain of some kind.
func startChain(ctx context.Context, kind string, n int) (hops.Chain, error) {
	switch kind {
	case "sdp":
		return startLine(ctx, n)
	case "tcp", "unix":
		return startSockets(ctx, kind, n)
	}
	b, err := startBare(ctx, n, func() {})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// passage runs a test and returns what some processes, in the order of a chain, used meanwhile.
func passage(pids []int, run func() (hops.Outcome, error)) (p hops.Passage, err error) {
	before, err := usage(pids)
	if err != nil {
		return p, err
	}
	o, err := run()
	if err != nil {
		return p, err
	}
	after, err := usage(pids)
	if err != nil {
		return p, err
	}
	p = hops.Passage{Value: o.Value, P50: o.P50, P99: o.P99, Messages: o.Messages, Asleep: o.Sleeps}
	for i := range pids {
		u := &p.Forwarders
		if i == 0 || i == len(pids)-1 {
			u = &p.Ends
		}
		u.CPU += after[i].CPU - before[i].CPU
		u.Sleeps += after[i].Sleeps - before[i].Sleeps
	}
	return p, nil
}

// counted runs a test and returns how many system calls some processes, in the order of a chain,
// made meanwhile.
func counted(pids []int, run func() (hops.Outcome, error)) (c hops.Calls, err error) {
	calls, err := perf.CountCalls(pids...)
	switch {
	case errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrPermission):
		return c, fmt.Errorf("%w: %w", hops.ErrNotCounted, err)
	case errors.Is(err, fs.ErrNotExist): // a process, or what counts
		if _, useErr := usage(pids); useErr != nil {
			return c, useErr
		}
		return c, fmt.Errorf("%w: %w", hops.ErrNotCounted, err)
	case err != nil:
		return c, err
	}
	defer calls.Close()
	o, err := run()
	if err != nil {
		return c, err
	}
	each, err := calls.Each()
	c.Messages = o.Messages
	for i, n := range each {
		if i == 0 || i == len(pids)-1 {
			c.Ends += n
		} else {
			c.Forwarders += n
		}
	}
	return c, err
}

// usage returns what each of some processes has used since it started.
func usage(pids []int) ([]hops.Use, error) {
	list := make([]hops.Use, len(pids))
	for i, pid := range pids {
		cpu, err := perf.ProcessCPU(pid)
		if err != nil {
			return nil, err
		}
		sleeps, err := perf.ProcessSleeps(pid)
		if err != nil {
			return nil, err
		}
		list[i] = hops.Use{CPU: float64(cpu) / float64(time.Microsecond), Sleeps: sleeps}
	}
	return list, nil
}

// messages is Outcome.Messages with each round trip as two.
func messages(test perf.Test, o hops.Outcome) hops.Outcome {
	if test == perf.RoundTrip {
		o.Messages *= 2
	}
	return o
}

// line is our chain: a line of nodes.
type line struct{ *ringNodes }

func startLine(ctx context.Context, n int) (hops.Chain, error) {
	// Without frames neighbours would use stores.
	nodes, err := startRing(ctx, hops.Shape{Topology: "line", Nodes: n + 1, Lanes: 1, Frames: n == 1})
	if err != nil {
		return nil, err
	}
	if _, err := nodes.nodes[0].ask(ctx, ask{Task: hops.Task{To: n + 1}, Verify: verifyChain}); err != nil {
		return nil, errors.Join(err, nodes.Close())
	}
	return line{nodes}, nil
}

// Pass implements hops.Chain. The nodes are asked for their counters before and after what they
// use is counted, since answers use it too.
func (l line) Pass(ctx context.Context, test perf.Test, size int, d time.Duration) (hops.Passage, error) {
	before, err := l.frames(ctx)
	if err != nil {
		return hops.Passage{}, err
	}
	p, err := passage(l.pids(), l.run(ctx, test, size, d))
	if err != nil {
		return p, err
	}
	after, err := l.frames(ctx)
	f := after.Since(before)
	p.Frames = &f
	return p, err
}

// Calls implements hops.Chain.
func (l line) Calls(ctx context.Context, test perf.Test, size int, d time.Duration) (hops.Calls, error) {
	before, err := l.frames(ctx)
	if err != nil {
		return hops.Calls{}, err
	}
	c, err := counted(l.pids(), l.run(ctx, test, size, d))
	if err != nil {
		return c, err
	}
	after, err := l.frames(ctx)
	c.Forwarded = after.Since(before).Forwarded
	return c, err
}

func (l line) pids() (pids []int) {
	for _, n := range l.nodes {
		pids = append(pids, n.cmd.Process.Pid)
	}
	return pids
}

// run returns a function that runs a test between the ends.
func (l line) run(ctx context.Context, test perf.Test, size int, d time.Duration) func() (hops.Outcome, error) {
	return func() (hops.Outcome, error) {
		list, err := l.each(ctx, []hops.Task{{From: 1, To: len(l.nodes), Test: test, Size: size, Duration: d}})
		if err != nil {
			return hops.Outcome{}, err
		}
		return messages(test, list[0]), nil
	}
}

// frames returns what the nodes have counted.
func (l line) frames(ctx context.Context) (f hops.Frames, err error) {
	t, err := fabric.ReadTopology(ctx, l.fabric)
	if err != nil {
		return f, err
	}
	if len(t.Views) != len(l.nodes) {
		return f, fmt.Errorf("%s: %d of %d nodes tell their counters", l.fabric, len(t.Views), len(l.nodes))
	}
	forwards := func(node int) bool { return node > 1 && node < len(l.nodes) }
	for _, v := range t.Views {
		for _, k := range v.Links {
			if forwards(v.Node) {
				f.Forwarded += k.ForwardedFrames
				f.RungBy += k.Doorbells
				f.Wakes += k.Wakes
				f.Rests += k.Rests
				f.Offers += k.Offers
			}
			if forwards(k.To) {
				f.RungAt += k.Doorbells
			}
		}
		for _, n := range v.Drops {
			f.Dropped += n
		}
	}
	return f, nil
}

// sockets is a chain of relays over TCP or Unix sockets.
type sockets struct {
	dir       string
	listening []*child // the server, and the relays from it to the client
	client    *measuring
}

func startSockets(ctx context.Context, network string, n int) (hops.Chain, error) {
	dir, err := os.MkdirTemp("", "sdp-perf-")
	if err != nil {
		return nil, err
	}
	s := &sockets{dir: dir}
	if err := s.start(ctx, network, n); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

// start starts the processes, from the server to the client.
func (s *sockets) start(ctx context.Context, network string, n int) error {
	server, err := startChild(ctx, s.dir, services(s.dir, commandService, []string{network}))
	if err != nil {
		return err
	}
	s.listening = []*child{server}
	for i := 1; i < n; i++ {
		at := perf.Endpoint{Network: network, Address: "127.0.0.1:0"}
		if network == "unix" {
			at.Address = filepath.Join(s.dir, fmt.Sprintf("relay%d", i))
		}
		next := s.listening[i-1].endpoints[0]
		r, err := startListening(ctx, "a relay", relayCommand, s.dir, at.String(), next.String())
		if err != nil {
			return err
		}
		s.listening = append(s.listening, r)
	}
	if s.client, err = startMeasuring(clientCommand, s.listening[n-1].endpoints[0].String()); err != nil {
		return err
	}
	if _, err := s.client.hear(ctx); err != nil {
		return err
	}
	_, err = s.client.ask(ctx, ask{Verify: verifyChain})
	return err
}

// Pass implements hops.Chain.
func (s *sockets) Pass(ctx context.Context, test perf.Test, size int, d time.Duration) (hops.Passage, error) {
	return passage(s.pids(), s.run(ctx, test, size, d))
}

// Calls implements hops.Chain.
func (s *sockets) Calls(ctx context.Context, test perf.Test, size int, d time.Duration) (hops.Calls, error) {
	return counted(s.pids(), s.run(ctx, test, size, d))
}

func (s *sockets) pids() []int {
	pids := []int{s.client.cmd.Process.Pid}
	for i := range s.listening {
		pids = append(pids, s.listening[len(s.listening)-1-i].cmd.Process.Pid)
	}
	return pids
}

// run returns a function that runs a test between the ends.
func (s *sockets) run(ctx context.Context, test perf.Test, size int, d time.Duration) func() (hops.Outcome, error) {
	return func() (hops.Outcome, error) {
		a, err := s.client.ask(ctx, ask{Task: hops.Task{Test: test, Size: size, Duration: d}, Begin: time.Now().Add(lead)})
		return messages(test, a.Outcome), err
	}
}

// Close implements hops.Chain.
func (s *sockets) Close() error {
	var err error
	if s.client != nil {
		s.client.end()
		if waitErr := s.client.wait(); waitErr != nil {
			err = fmt.Errorf("the client of a chain: %w", waitErr)
		}
	}
	for _, c := range s.listening {
		if state := c.stop(); !state.Success() && err == nil {
			err = fmt.Errorf("a process of a chain: %v", state)
		}
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// clientCommand is the client of a chain of sockets, which another process measures. Its
// argument is where it dials.
const clientCommand = "chain-client"

func runChainClient(ctx context.Context, args []string, out io.Writer) error {
	ignoreSignals()
	if len(args) != 1 {
		return badInputf("%s is started by sdp-perf itself", clientCommand)
	}
	e, err := perf.ParseEndpoint(args[0])
	if err != nil {
		return badInputf("%s is started by sdp-perf itself (%w)", clientCommand, err)
	}
	m := newMeasurer(func(int) perf.Endpoint { return e }, dial)
	defer m.close()
	return m.serve(ctx, json.NewEncoder(out))
}
