package meter

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime/debug"
	"sync"
	"time"
)

// Times that a server allows a client.
const (
	greetTime  = 10 * time.Second // from a connection to its preamble
	attachTime = 60 * time.Second // from the start of a run until its streams are there
	drainTime  = 10 * time.Second // from the end of a run until its streams have ended
)

// maxGreeting is how many connections at a time may be without a run.
const maxGreeting = 1024

// maxRuns is how many runs a server carries out at the same time.
const maxRuns = 32

// Server carries out what clients ask for, several runs at the same time.
type Server struct {
	Observe func(Params) Observer // if set, returns one for a run
	Refused func(error)           // if set, hears of clients of another version, or another program

	Trace io.Writer // as in Target

	// Memory bounds what all runs take, as Params.memory estimates it. 0 means MaxMemory.
	Memory int

	// mu guards the following.
	mu   sync.Mutex
	runs map[string]*run
	used int // of Memory
}

// Observer hears of a run, by one call after the other. Each of its functions may be nil.
type Observer struct {
	Connected func(*Result)           // all streams are there
	Interval  func(*Result, Interval) // each Every
	Ended     func(*Result, error)    // of a server
	Output    func() string           // of a server, what was printed until Ended has returned
	Every     time.Duration           // 0 if there are no intervals
}

// Serve accepts connections from ln, which it owns, until ctx ends, and then returns nil. When it returns,
// no connection is in use any more.
func (s *Server) Serve(ctx context.Context, ln net.Listener) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	context.AfterFunc(ctx, func() { ln.Close() })
	var work sync.WaitGroup
	greeting := make(chan struct{}, maxGreeting)
	for {
		c, err := ln.Accept()
		if err != nil {
			if ctx.Err() != nil {
				err = nil
			}
			end()
			work.Wait()
			return err
		}
		greeting <- struct{}{} // mostly at once, for greetTime at the longest
		work.Go(func() {
			defer context.AfterFunc(ctx, func() { c.Close() })()
			if !s.accepted(ctx, c, sync.OnceFunc(func() { <-greeting })) {
				c.Close()
			}
		})
	}
}

// accepted serves a connection, and calls greeted when that belongs to a run, or has ended. It returns true if c belongs
// to a run now.
func (s *Server) accepted(ctx context.Context, c net.Conn, greeted func()) (kept bool) {
	defer greeted()
	_ = c.SetReadDeadline(time.Now().Add(greetTime)) // if it fails, so does the read
	kind, name, err := readPreamble(c)
	_ = c.SetReadDeadline(time.Time{})
	switch {
	case errors.Is(err, ErrIperf3), errors.Is(err, errVersion):
		_ = newControlConn(c, maxOrder).send(message{Error: err.Error()})
		if s.Refused != nil {
			s.Refused(err)
		}
	case err == nil && kind == data:
		s.mu.Lock()
		r := s.runs[name]
		s.mu.Unlock()
		return r != nil && r.attach(c, greeted)
	case err == nil:
		lines := newControlConn(c, maxOrder)
		lines.trace = s.Trace
		if err := s.control(ctx, name, lines, greeted); err != nil {
			_ = lines.send(message{Error: err.Error()}) // the client may be gone
		}
	}
	return false
}

// attach makes c the next stream. For Connect it answers c.
func (r *run) attach(c net.Conn, greeted func()) (kept bool) {
	if r.p.Test == Connect {
		defer r.answers.n.Add(-1)
		if int(r.answers.n.Add(1)) > r.p.answers() {
			return false
		}
		greeted()
		defer context.AfterFunc(r.answers.over, func() { c.Close() })()
		r.streams[0].done.Add(uint64(r.p.Size)) // the client may be at its end as soon as it has the answer
		if _, err := c.Write(r.ones()); err == nil {
			_, _ = c.Read(make([]byte, 1)) // until the client closes
		}
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.attached == len(r.streams) || setWindow(c, r.p.Window) != nil {
		return false
	}
	if _, err := c.Write([]byte{1}); err != nil {
		return false
	}
	r.streams[r.attached].conn = c
	r.attached++
	return true
}

// attachNoMore ends the time of attach, and returns whether all streams are there.
func (r *run) attachNoMore() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.attached == r.p.total()
	r.attached = len(r.streams)
	return all
}

// reserve takes memory for a run, which release gives back.
func (s *Server) reserve(needs int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch limit := cmp.Or(s.Memory, MaxMemory); {
	case needs > limit:
		return fmt.Errorf("that takes %d MiB of the server's memory, which gives %d: use fewer streams or smaller messages", needs>>20+1, limit>>20)
	case s.used+needs > limit:
		return errors.New("others use the server's memory: try again later, or use fewer streams or smaller messages")
	}
	s.used += needs
	return nil
}

// release is called when nothing of the run is in use any more.
func (s *Server) release(needs int) {
	if needs > 4<<20 {
		debug.FreeOSMemory() // so that it is not there twice
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.used -= needs
}

// add adds a run, which is removed by the caller.
func (s *Server) add(name string, r *run) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.runs) == maxRuns:
		return fmt.Errorf("the server carries out %d runs, and no more at the same time: try again later", maxRuns)
	case s.runs[name] != nil:
		return errNotPerf
	case s.runs == nil:
		s.runs = make(map[string]*run)
	}
	s.runs[name] = r
	return nil
}

// control serves a control connection, which has one run, and leads that to its end.
func (s *Server) control(ctx context.Context, name string, c *controlConn, greeted func()) error {
	m, err := c.receive(greetTime)
	if err != nil || m.Params == nil {
		return errNotPerf
	}
	p := *m.Params
	if err := p.Check(); err != nil {
		return err
	}
	needs := p.memory()
	if err := s.reserve(needs); err != nil {
		return err
	}
	defer s.release(needs)
	r := newRun(p, false)
	if err := s.add(name, r); err != nil {
		return err
	}
	greeted()
	defer func() {
		s.mu.Lock()
		delete(s.runs, name)
		s.mu.Unlock()
		r.attachNoMore()
		r.stop(nil)
		r.answers.end()
		r.close()
	}()
	if err := c.send(message{Do: "ready"}); err != nil {
		return err
	}
	m, err = c.receive(attachTime)
	if !r.attachNoMore() || err == nil && m.Do != "run" {
		err = cmp.Or(err, errNotPerf)
	}
	if err != nil {
		return err
	}
	var o Observer
	if s.Observe != nil && p.Test != verifying {
		o = s.Observe(p)
	}
	res := newResult(p, c.Conn)
	for _, s := range r.streams[:p.total()] {
		res.connected(s.conn)
	}
	if o.Connected != nil {
		o.Connected(res)
	}
	watched := r.begin(o, res)
	drain := drainTime
	if m, err = c.receive(0); err != nil {
		drain, err = 0, fmt.Errorf("the client is gone: %w", noEOF(err))
		if ctx.Err() != nil {
			err = errors.New("the server ends")
		}
	} else if m.Do != "stop" {
		err = errNotPerf
	}
	r.measureMemory(1)
	r.stop(err)
	life, end := context.WithTimeout(ctx, drain)
	r.ends(life)
	end()
	watched()
	res.Here = r.side()
	if err = cmp.Or(err, r.err()); err == nil {
		err = c.send(message{Side: res.Here})
	}
	if o.Ended != nil {
		o.Ended(res, err)
	}
	if p.Output && o.Output != nil && err == nil {
		err = c.send(message{Output: o.Output()})
	}
	return err
}
