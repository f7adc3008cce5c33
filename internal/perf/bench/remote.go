package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"
)

// A worker is a program that measures transports of its own. It first writes a line
// with a Hello to its standard output, which says what transports it has. Then it
// reads Requests, one to a line, and answers each with a line that has a Response,
// until its standard input ends.

// Hello is a worker's first line.
type Hello struct {
	Transports []string `json:"transports"`
}

// Request asks for one measurement.
type Request struct {
	Transport  string  `json:"transport"`
	Task       Task    `json:"task"`
	DurationMS float64 `json:"duration_ms"`
}

// Response is the outcome of a measurement, or why there is none.
type Response struct {
	Outcome     Outcome `json:"outcome"`
	Error       string  `json:"error,omitempty"`
	Unsupported bool    `json:"unsupported,omitempty"`
}

// ServeWorker is the worker's side. When in ends, the parent is dead, and a measurement
// under way ends too.
func ServeWorker(ctx context.Context, in io.Reader, out io.Writer, transports []Transport) error {
	enc := json.NewEncoder(out)
	var hello Hello
	for _, t := range transports {
		hello.Transports = append(hello.Transports, t.Name())
	}
	if err := enc.Encode(hello); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	requests := make(chan Request)
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		for dec := json.NewDecoder(in); ; {
			var req Request
			if err := dec.Decode(&req); err != nil {
				ended <- err
				return
			}
			select {
			case requests <- req:
			case <-ctx.Done():
				return
			}
		}
	}()
	for {
		select {
		case req := <-requests:
			if err := enc.Encode(respond(ctx, req, transports)); err != nil {
				return err
			}
		case err := <-ended:
			if err == io.EOF {
				return nil
			}
			return err
		}
	}
}

func respond(ctx context.Context, req Request, transports []Transport) (r Response) {
	i := slices.IndexFunc(transports, func(t Transport) bool { return t.Name() == req.Transport })
	if i < 0 {
		return Response{Error: "no such transport"}
	}
	o, err := transports[i].Measure(ctx, req.Task, time.Duration(req.DurationMS*float64(time.Millisecond)))
	switch {
	case errors.Is(err, ErrUnsupported):
		return Response{Unsupported: true, Error: reason(err)}
	case err != nil:
		return Response{Error: err.Error()}
	}
	return Response{Outcome: o}
}

// reason returns the text of an error without ErrUnsupported.
func reason(err error) string {
	_, why, _ := strings.Cut(err.Error(), ErrUnsupported.Error()+": ")
	return why
}

// Worker is the parent's side of a worker. A worker that ends or hangs is started
// again for the next measurement.
type Worker struct {
	command func() *exec.Cmd
	run     *running // nil until started
}

type running struct {
	cmd   *exec.Cmd
	stdin io.Closer
	enc   *json.Encoder
	out   *os.File // the read end of the worker's standard output
	lines *bufio.Reader
	hello Hello
}

const (
	workerStart = 20 * time.Second
	workerStop  = 5 * time.Second // until it ends by itself; then it is killed
)

// StartWorker starts the program that command returns, and returns the program's
// transports. Closing the last of them ends the program.
func StartWorker(ctx context.Context, command func() *exec.Cmd) ([]Transport, error) {
	w := &Worker{command: command}
	if err := w.start(ctx); err != nil {
		return nil, err
	}
	var list []Transport
	for _, name := range w.run.hello.Transports {
		list = append(list, &Remote{w, name})
	}
	if len(list) == 0 {
		return nil, errors.Join(errors.New("the worker has no transport"), w.stop())
	}
	return list, nil
}

func (w *Worker) start(ctx context.Context) error {
	cmd := w.command()
	out, write, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd.Stdout = write
	stdin, err := cmd.StdinPipe()
	if err == nil {
		err = cmd.Start()
	}
	write.Close() // so that the worker's end is the end of its output
	if err != nil {
		out.Close()
		return err
	}
	w.run = &running{cmd: cmd, stdin: stdin, enc: json.NewEncoder(stdin), out: out, lines: bufio.NewReader(out)}
	if err := w.run.read(ctx, workerStart, &w.run.hello); err != nil {
		return errors.Join(err, w.stop())
	}
	return nil
}

// read reads one line.
func (r *running) read(ctx context.Context, limit time.Duration, v any) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer after %v: it hangs", limit))
	defer cancel()
	// This sets a deadline rather than closing, since the reader may be in use.
	defer context.AfterFunc(ctx, func() { r.out.SetReadDeadline(time.Unix(1, 0)) })()
	line, err := r.lines.ReadBytes('\n')
	switch {
	case err != nil && ctx.Err() != nil:
		return context.Cause(ctx)
	case err == io.EOF:
		return errors.New("the worker ended")
	case err != nil:
		return err
	}
	return json.Unmarshal(line, v)
}

// stop ends the worker, by force if necessary.
func (w *Worker) stop() error {
	r := w.run
	if r == nil {
		return nil
	}
	w.run = nil
	r.stdin.Close()
	defer time.AfterFunc(workerStop, func() { r.cmd.Process.Kill() }).Stop()
	err := r.cmd.Wait()
	r.out.Close()
	return err
}

// Remote is a transport of a worker.
type Remote struct {
	w    *Worker
	name string
}

// Name returns the worker's name for the transport.
func (r *Remote) Name() string { return r.name }

// Close ends the worker.
func (r *Remote) Close() error { return r.w.stop() }

// Measure implements Transport.
func (r *Remote) Measure(ctx context.Context, t Task, d time.Duration) (Outcome, error) {
	if r.w.run == nil {
		if err := r.w.start(ctx); err != nil {
			return Outcome{}, err
		}
	}
	resp, err := r.ask(ctx, Request{r.name, t, float64(d) / float64(time.Millisecond)}, 2*max(d, time.Duration(t.Windows)*t.window())+2*slack)
	if err != nil {
		r.w.run.cmd.Process.Kill()
		_ = r.w.stop() // the cause is err
		return Outcome{}, err
	}
	switch {
	case resp.Unsupported && resp.Error != "":
		return Outcome{}, fmt.Errorf("%w: %s", ErrUnsupported, resp.Error)
	case resp.Unsupported:
		return Outcome{}, ErrUnsupported
	case resp.Error != "":
		return Outcome{}, errors.New(resp.Error)
	}
	return resp.Outcome, nil
}

func (r *Remote) ask(ctx context.Context, req Request, limit time.Duration) (resp Response, err error) {
	if err := r.w.run.enc.Encode(req); err != nil {
		return resp, fmt.Errorf("ask the worker: %w", err)
	}
	err = r.w.run.read(ctx, limit, &resp)
	return resp, err
}
