package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/internal/perf"
	"github.com/ntbnet/ntbnet/internal/perf/hops"
	"github.com/ntbnet/ntbnet/sdp"
)

// ask is a task for a process that measures: a line of its standard input. All processes begin
// it at the given time, so that they begin together. Without a Duration the connection is made
// and no more, but what Verify says.
type ask struct {
	hops.Task
	Begin  time.Time
	Verify uint64 // so many bytes are sent each way and checked
}

// answer is a line of its standard output: one when it is ready, and one for each ask.
type answer struct {
	Outcome hops.Outcome
	Error   string
}

// maxRoundTrips is how many single round trips are timed.
const maxRoundTrips = 20000

// measurer carries out tasks in this process.
type measurer struct {
	groups map[int]*perf.Group // by the process at the other end
	where  func(to int) perf.Endpoint
	dial   func(context.Context, perf.Endpoint) (net.Conn, error)
}

func newMeasurer(where func(to int) perf.Endpoint, dial func(context.Context, perf.Endpoint) (net.Conn, error)) *measurer {
	return &measurer{groups: map[int]*perf.Group{}, where: where, dial: dial}
}

// serve answers what is asked on the standard input, until that ends, and once before it.
func (m *measurer) serve(ctx context.Context, answers *json.Encoder) error {
	if err := answers.Encode(answer{}); err != nil {
		return err
	}
	for asks := json.NewDecoder(os.Stdin); ; {
		var a ask
		if err := asks.Decode(&a); err != nil {
			return nil // the parent has ended
		}
		var reply answer
		var err error
		if reply.Outcome, err = m.measure(ctx, a); err != nil {
			reply = answer{Error: oneLine(err)}
		}
		if err := answers.Encode(reply); err != nil {
			return err
		}
	}
}

func (m *measurer) measure(ctx context.Context, a ask) (o hops.Outcome, err error) {
	g := m.groups[a.To]
	if g == nil {
		if g, err = perf.Connect(ctx, m.where(a.To), 1, 64<<10, m.dial); err != nil {
			return o, err
		}
		g.TakeSamples(maxRoundTrips)
		g.CountSleeps(sleeps)
		m.groups[a.To] = g
	}
	if a.Verify > 0 {
		if err := g.Verify(ctx, a.Verify); err != nil {
			return o, fmt.Errorf("verifying: %w", err)
		}
	}
	if a.Duration == 0 {
		return o, nil
	}
	time.Sleep(time.Until(a.Begin))
	f, err := g.Slice(ctx, a.Test, a.Size, a.Duration)
	return hops.Outcome{Value: f.Value, P50: f.P50, P99: f.P99, Messages: f.Messages, Sleeps: f.Sleeps}, err
}

// sleeps returns how often an end of a connection slept while the other one worked: its own reader,
// and the peer's, which it notified. It returns 0 for sockets, which do not count that.
func sleeps(c net.Conn) uint64 {
	own, ok := c.(*sdp.Conn)
	if !ok {
		return 0
	}
	s := own.Stats()
	return s.ReadParks + s.Doorbells
}

func (m *measurer) close() {
	for _, g := range m.groups {
		g.Close()
	}
}

// measuring is a process with a measurer, as its parent sees it.
type measuring struct {
	cmd     *exec.Cmd
	stdin   io.Closer
	asks    *json.Encoder
	answers *json.Decoder
	mu      sync.Mutex // held by the caller that waits for an answer
}

// startMeasuring starts this program again. Its first answer says that it is ready.
func startMeasuring(args ...string) (*measuring, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(exe, args...)
	cmd.Stderr = os.Stderr
	stdin, inErr := cmd.StdinPipe()
	stdout, outErr := cmd.StdoutPipe()
	if err := errors.Join(inErr, outErr); err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a process: %w", err)
	}
	return &measuring{cmd: cmd, stdin: stdin, asks: json.NewEncoder(stdin), answers: json.NewDecoder(stdout)}, nil
}

// ask sends a task to the process and waits for the answer. When ctx ends, it ends the
// process.
func (p *measuring) ask(ctx context.Context, a ask) (answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.asks.Encode(a); err != nil {
		return answer{}, fmt.Errorf("it has ended: %w", err)
	}
	return p.hear(ctx)
}

func (p *measuring) hear(ctx context.Context) (a answer, err error) {
	defer context.AfterFunc(ctx, func() { p.cmd.Process.Kill() })()
	err = p.answers.Decode(&a)
	switch {
	case ctx.Err() != nil:
		return a, context.Cause(ctx)
	case err != nil:
		return a, errors.New("ended before it answered")
	case a.Error != "":
		return a, errors.New(a.Error)
	}
	return a, nil
}

// end has the process end, without waiting.
func (p *measuring) end() { p.stdin.Close() }

// wait waits until the process has ended, and kills one that does not. It returns how it ended.
func (p *measuring) wait() error {
	defer time.AfterFunc(childStop, func() { p.cmd.Process.Kill() }).Stop()
	return p.cmd.Wait()
}
