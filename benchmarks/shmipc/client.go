package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	shmipc "github.com/cloudwego/shmipc-go"

	"github.com/ntbnet/ntbnet/internal/perf/bench"
)

// The two transports.
const (
	streamAPI = "shmipc"
	bufferAPI = "shmipc-buffer"
)

// transport measures one of the library's APIs. Each measurement has a session of
// its own, since a session fixes the sizes in shared memory.
type transport struct {
	api  string
	path string // of the server's socket
}

func (t *transport) Name() string { return t.api }

func (t *transport) Close() error { return nil }

// Measure implements bench.Transport.
func (t *transport) Measure(ctx context.Context, task bench.Task, d time.Duration) (bench.Outcome, error) {
	if task.Connections != 1 || task.Test != bench.RoundTrip && task.Test != bench.OneWay {
		return bench.Outcome{}, bench.ErrUnsupported
	}
	o, err := t.once(ctx, task, d)
	for i := 1; i < attempts && err != nil && ctx.Err() == nil; i++ {
		o, err = t.once(ctx, task, d)
	}
	return o, err
}

// attempts is how often a measurement is tried until all of it went through shared
// memory. The library's list of free memory can appear empty for a moment when both
// processes use it. A stream that once took the socket stays there, or ends.
const attempts = 3

func (t *transport) once(ctx context.Context, task bench.Task, d time.Duration) (bench.Outcome, error) {
	manager, err := shmipc.NewSessionManager(&shmipc.SessionManagerConfig{
		Config: config(task.Size, io.Discard), Network: "unix", Address: t.path,
		SessionNum: 1, MaxStreamNum: 1, StreamMaxIdleTime: time.Minute,
	})
	if err != nil {
		return bench.Outcome{}, err
	}
	defer manager.Close()
	s, err := manager.GetStream()
	if err != nil {
		return bench.Outcome{}, err
	}
	defer s.Close()
	defer context.AfterFunc(ctx, func() { s.Close() })()
	// If the library hangs, the process that asked for the figure reports it.
	rate, err := t.run(s, task, d)
	if err == nil {
		err = wentAround(s)
	}
	if err != nil {
		return bench.Outcome{}, err
	}
	o := bench.Outcome{Value: 1e6 / rate, Rate: rate, Slowest: 1}
	if task.Test == bench.OneWay {
		o.Value = rate * float64(task.Size) / 1e9
	}
	return o, nil
}

var errAround = errors.New("not all of it through shared memory")

// wentAround returns an error if something bypassed shared memory.
func wentAround(s *shmipc.Stream) error {
	_, m, _ := s.Session().GetMetrics()
	if m.FallbackWriteCount > 0 {
		return fmt.Errorf("%w: %d writes found none free and took the Unix socket (there is no flow control), in each of %d attempts",
			errAround, m.FallbackWriteCount, attempts)
	}
	return nil
}

// run returns messages or round trips per second, after a warm-up.
func (t *transport) run(s *shmipc.Stream, task bench.Task, d time.Duration) (float64, error) {
	h := header{size: task.Size}
	if task.Test == bench.OneWay {
		h.stretch = stretchOf(task.Size)
	}
	if _, err := s.Write(h.encode()); err != nil {
		return 0, err
	}
	m := newMessenger(s, t.api, h.size)
	measure := func(d time.Duration) (int, error) { return echo(m, d) }
	if h.stretch > 0 {
		measure = func(d time.Duration) (int, error) { return sink(m, s, h.stretch, d) }
	}
	if _, err := measure(d / 6); err != nil {
		return 0, err
	}
	start := time.Now()
	n, err := measure(d)
	return float64(n) / time.Since(start).Seconds(), err
}

// echo makes round trips for d and returns their number.
func echo(m messenger, d time.Duration) (n int, err error) {
	for start := time.Now(); time.Since(start) < d; {
		for range 16 { // one reading of the clock for all of them
			if err := m.send(); err != nil {
				return n, err
			}
			if err := m.receive(); err != nil {
				return n, err
			}
			n++
		}
	}
	return n, nil
}

// sink sends stretches of messages for d, at most two ahead of what the reader has
// acknowledged. It waits until all are acknowledged, and returns the number of
// messages.
func sink(m messenger, acks io.Reader, stretch int, d time.Duration) (n int, err error) {
	var ack [1]byte
	ahead := 0
	for start := time.Now(); ; ahead++ {
		for ahead == 2 || ahead > 0 && time.Since(start) >= d {
			if _, err := io.ReadFull(acks, ack[:]); err != nil {
				return n, err
			}
			ahead--
		}
		if n > 0 && time.Since(start) >= d {
			return n, nil
		}
		for range stretch {
			if err := m.send(); err != nil {
				return n, err
			}
		}
		n += stretch
	}
}
