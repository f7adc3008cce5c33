package meter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// Times that a server allows a client.
const (
	greetTime  = 10 * time.Second // from a connection to its preamble
	attachTime = 60 * time.Second // from the start of a run until its streams are there
	drainTime  = 10 * time.Second // from the end of a run until its streams have ended
)

// Server carries out what clients ask for, several runs at the same time.
type Server struct {
	// Observer, if set, hears of the runs. It is set before Serve, and called by several
	// goroutines.
	Observer Observer
	// Once has Serve return after one run.
	Once bool

	mu      sync.Mutex
	closed  bool                   // guarded by mu
	closers map[io.Closer]struct{} // listeners and connections; guarded by mu
	runs    map[string]*served     // guarded by mu
	work    sync.WaitGroup         // one for each connection
}

// Observer hears of runs.
type Observer struct {
	Connected func(*Result)           // all streams are there
	Interval  func(*Result, Interval) // each Every
	Ended     func(*Result, error)    // of a server
	Refused   func(error)             // a client of another version, or another program
	Every     time.Duration           // 0 if there are no intervals
}

// served is a run of a server.
type served struct {
	*run
	result   *Result
	mu       sync.Mutex
	missing  int           // streams; guarded by mu
	attached chan struct{} // closed when none is
}

// Serve accepts connections from ln until Close, or with Once until one run is over, and then
// returns nil. It owns ln.
func (s *Server) Serve(ln net.Listener) error {
	if !s.add(ln) {
		return nil
	}
	defer s.remove(ln)
	for {
		c, err := ln.Accept()
		if err != nil {
			if s.isClosed() {
				return nil
			}
			return err
		}
		if !s.add(c) {
			return nil
		}
		s.work.Go(func() {
			if !s.accepted(c) {
				s.remove(c)
			}
		})
	}
}

// Close closes every listener and connection and waits until none is in use.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	for c := range s.closers {
		c.Close()
	}
	s.mu.Unlock()
	s.work.Wait()
}

// add takes ownership of c. After Close it closes c and returns false.
func (s *Server) add(c io.Closer) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		c.Close()
		return false
	}
	if s.closers == nil {
		s.closers, s.runs = make(map[io.Closer]struct{}), make(map[string]*served)
	}
	s.closers[c] = struct{}{}
	return true
}

func (s *Server) remove(c io.Closer) {
	s.mu.Lock()
	delete(s.closers, c)
	s.mu.Unlock()
	c.Close()
}

func (s *Server) isClosed() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed
}

// accepted serves a connection. It returns true if c belongs to a run now.
func (s *Server) accepted(c net.Conn) (kept bool) {
	if err := c.SetReadDeadline(time.Now().Add(greetTime)); err != nil {
		return false
	}
	p, err := readPreamble(c)
	if err == nil {
		err = c.SetReadDeadline(time.Time{})
	}
	if err != nil {
		if errors.Is(err, ErrIperf3) || errors.Is(err, errVersion) {
			_ = newControlConn(c).send(message{Error: err.Error()})
			if s.Observer.Refused != nil {
				s.Observer.Refused(err)
			}
		}
		return false
	}
	if p.kind == data {
		return s.attach(p, c)
	}
	s.controls(p.run, newControlConn(c))
	return false
}

// attach gives a data connection to its run. For Connect it answers it.
func (s *Server) attach(p preamble, c net.Conn) (kept bool) {
	s.mu.Lock()
	r := s.runs[p.run]
	s.mu.Unlock()
	if r == nil || p.stream >= len(r.streams) {
		return false
	}
	st := r.streams[p.stream]
	if r.p.Test == Connect {
		st.done.Add(uint64(r.p.Size)) // the client may be at its end as soon as it has the answer
		if _, err := c.Write(make([]byte, r.p.Size)); err == nil {
			_, _ = c.Read(make([]byte, 1)) // until the client closes
		}
		return false
	}
	if err := setWindow(c, r.p.Window); err != nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if st.conn != nil || r.missing == 0 {
		return false
	}
	st.conn = c
	if r.missing--; r.missing == 0 {
		close(r.attached)
	}
	return true
}

// controls serves a control connection, which has one run.
func (s *Server) controls(name string, c *controlConn) {
	fail := func(err error) { _ = c.send(message{Error: err.Error()}) }
	_ = c.SetReadDeadline(time.Now().Add(greetTime))
	m, err := c.receive()
	if err != nil || m.Do != "start" || m.Params == nil {
		return
	}
	_ = c.SetReadDeadline(time.Time{})
	p := *m.Params
	if err := p.Check(); err != nil {
		fail(err)
		return
	}
	r := &served{run: newRun(p, false), missing: p.total(), attached: make(chan struct{})}
	r.result = &Result{Params: p, Transport: transportOf(c.Conn), Local: c.LocalAddr().String(), Remote: c.RemoteAddr().String(), Started: time.Now()}
	if r.missing == 0 {
		close(r.attached)
	}
	s.mu.Lock()
	if s.runs[name] != nil {
		s.mu.Unlock()
		return
	}
	s.runs[name] = r
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		delete(s.runs, name)
		s.mu.Unlock()
		r.mu.Lock()
		defer r.mu.Unlock()
		r.missing = 0 // none is attached any more
		for _, st := range r.streams {
			if st.conn != nil {
				s.remove(st.conn)
			}
		}
	}()
	if err := s.carryOut(r, c); err != nil {
		fail(err)
	}
}

// carryOut leads a run to its end.
func (s *Server) carryOut(r *served, c *controlConn) error {
	if err := c.send(message{Do: "ready"}); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	lines := make(chan string)
	s.work.Go(func() { // until c is closed
		for {
			m, err := c.receive()
			if err != nil {
				cancel(fmt.Errorf("the client is gone: %w", noEOF(err)))
				return
			}
			select {
			case lines <- m.Do:
			case <-ctx.Done():
				return
			}
		}
	})
	next := func(want string) error {
		select {
		case do := <-lines:
			if do != want {
				return errNotPerf
			}
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	timer := time.NewTimer(attachTime)
	defer timer.Stop()
	for waiting := true; waiting; {
		select {
		case <-r.attached:
			waiting = false
		case do := <-lines:
			if do != "usage" {
				return errNotPerf
			}
			if err := c.send(message{Do: "usage", Side: &Side{Memory: memory(), Times: &Times{}}}); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
			return fmt.Errorf("not all streams were there after %v", attachTime)
		}
	}
	if err := c.send(message{Do: "attached"}); err != nil {
		return err
	}
	if err := next("run"); err != nil {
		return err
	}
	o := s.Observer
	if o.Connected != nil && r.p.Test != verifying {
		o.Connected(r.result)
	}
	r.begin()
	watched := r.observe(o, r.result)
	err := next("stop")
	if r.p.Test == Idle {
		r.memory = memory()
	}
	r.stop(err)
	drain, end := context.WithTimeout(ctx, drainTime)
	r.ends(drain)
	end()
	watched()
	r.result.Here = r.side()
	failed := r.err()
	if err == nil && failed == nil {
		err = c.send(message{Do: "result", Side: r.result.Here})
	} else if err == nil {
		err = failed
	}
	if o.Ended != nil && r.p.Test != verifying {
		o.Ended(r.result, err)
	}
	if s.Once && r.p.Test != verifying {
		s.closeListeners()
	}
	return err
}

// Wait waits until no connection is in use.
func (s *Server) Wait() { s.work.Wait() }

// closeListeners has Serve return.
func (s *Server) closeListeners() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	for c := range s.closers {
		if ln, ok := c.(net.Listener); ok {
			ln.Close()
		}
	}
}

// observe reports the intervals of a run, until the function that it returns is called.
func (r *run) observe(o Observer, to *Result) (end func()) {
	if o.Every <= 0 || o.Interval == nil || r.p.Test == verifying {
		return func() {}
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		r.watch(ctx, o.Every, func(in Interval) {
			to.Intervals = append(to.Intervals, in)
			o.Interval(to, in)
		})
	}()
	return func() {
		cancel()
		<-done
	}
}
