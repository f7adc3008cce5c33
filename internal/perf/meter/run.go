package meter

import (
	"context"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
)

// CPU is processor time of a process.
type CPU struct {
	User   time.Duration `json:"user"`
	System time.Duration `json:"system"`
}

// Total returns both parts.
func (c CPU) Total() time.Duration { return c.User + c.System }

// OwnCPU returns the processor time that this process has used.
func OwnCPU() time.Duration { return cpu().Total() }

func (c CPU) less(o CPU) CPU { return CPU{c.User - o.User, c.System - o.System} }

// Stream is what one side did on one data connection while it was measured. Connect has one for
// each goroutine that connects.
type Stream struct {
	ID    int           `json:"id"`
	Sends bool          `json:"sends"`
	Bytes uint64        `json:"bytes"`
	Ops   uint64        `json:"ops"`
	Took  time.Duration `json:"took"`
}

// Side is what one side of a run did while it was measured.
type Side struct {
	Streams []Stream      `json:"streams"`
	Took    time.Duration `json:"took"`
	CPU     CPU           `json:"cpu"`              // of the whole process
	Memory  uint64        `json:"memory,omitempty"` // of Idle
	Paths   *sdp.Stats    `json:"paths,omitempty"`  // of all streams by SDP
	// Times are of single operations; in Bandwidth, of each MiB that this side received.
	Times *Times `json:"times"`
	// Sent has, for Loaded, the times since the operations began; Times has those since they were
	// due, which corrects for coordinated omission.
	Sent *Times `json:"sent,omitempty"`
}

// Interval is what one side did in a part of a run.
type Interval struct {
	Start, End time.Duration
	Omitted    bool
	Streams    []Stream
}

// stream is a data connection at work, or a goroutine of Connect.
type stream struct {
	id    int
	sends bool // of the operations that are counted
	conn  net.Conn
	done  atomic.Uint64 // bytes
	base  uint64        // done when the measurement began
	paths sdp.Stats     // then
	ended atomic.Int64  // since the run began; 0 before
	// Of its goroutine, until that has ended.
	times, sent Times
	err         error
}

// run is one side of a run.
type run struct {
	p       Params
	client  bool
	dial    func(context.Context) (net.Conn, error) // of a client of Connect
	streams []*stream
	begun   time.Time
	stop    context.CancelCauseFunc // no operation begins any more
	stopped context.Context
	halt    atomic.Bool  // stopped, for the goroutines of the streams
	left    atomic.Int64 // bytes that are still to be sent, if Params.Bytes is set
	work    sync.WaitGroup
	memory  uint64 // of Idle, at the end

	mu       sync.Mutex
	measured bool          // guarded by mu
	marked   time.Duration // when that began; guarded by mu
	cpu      CPU           // then; guarded by mu
	counting atomic.Bool   // measured, for the goroutines of the streams
}

func newRun(p Params, client bool) *run {
	if p.Test == Idle {
		p.Size = 1
	}
	r := &run{p: p, client: client}
	r.stopped, r.stop = context.WithCancelCause(context.Background())
	context.AfterFunc(r.stopped, func() { r.halt.Store(true) })
	r.left.Store(int64(min(p.Bytes, 1<<62)))
	n := p.total()
	if p.Test == Connect {
		n = p.Streams
	}
	for i := range n {
		s := &stream{id: i + 1, sends: client}
		if p.Test == Bandwidth {
			s.sends = p.sends(client, i)
		}
		r.streams = append(r.streams, s)
	}
	return r
}

// begin starts the work of this side.
func (r *run) begin() {
	r.begun = time.Now()
	if r.p.Omit == 0 {
		r.mark()
	} else {
		timer := time.AfterFunc(r.p.Omit, r.mark)
		context.AfterFunc(r.stopped, func() { timer.Stop() })
	}
	if r.p.Time > 0 {
		timer := time.AfterFunc(r.p.Omit+r.p.Time, func() { r.stop(nil) })
		context.AfterFunc(r.stopped, func() { timer.Stop() })
	}
	if r.p.Test == Idle && r.client {
		r.work.Go(r.idles)
		return
	}
	for _, s := range r.streams {
		r.work.Go(func() {
			s.err = r.serve(s)
			s.ended.Store(int64(time.Since(r.begun)))
			if s.err != nil {
				r.stop(s.err)
			}
		})
	}
}

// serve does what this side does on a stream.
func (r *run) serve(s *stream) error {
	switch r.p.Test {
	case Bandwidth:
		if !s.sends {
			return r.sink(s)
		}
		if err := r.source(s); err != nil {
			return err
		}
		return closeWrite(s.conn)
	case verifying:
		return r.verify(s)
	case Connect:
		if !r.client {
			<-r.stopped.Done() // each connection is answered as it comes
			return nil
		}
		return r.connects(s)
	}
	if !r.client {
		return r.echo(s)
	}
	if err := r.asks(s); err != nil {
		return err
	}
	return closeWrite(s.conn)
}

// mark begins the measurement: what was done before does not count.
func (r *run) mark() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.measured {
		return
	}
	for _, s := range r.streams {
		if r.p.Omit > 0 { // else all counts, that of Connect before this side began too
			s.base = s.done.Load()
		}
		s.paths = pathsOf(s.conn)
	}
	r.cpu = cpu()
	r.measured, r.marked = true, time.Since(r.begun)
	r.counting.Store(true)
}

func pathsOf(c net.Conn) (s sdp.Stats) {
	if c, ok := c.(*sdp.Conn); ok {
		return c.Stats()
	}
	return s
}

// ends waits until all streams have ended, or until ctx ends. Then it closes them.
func (r *run) ends(ctx context.Context) {
	stop := context.AfterFunc(ctx, r.close)
	defer stop()
	r.work.Wait()
}

func (r *run) close() {
	for _, s := range r.streams {
		if s.conn != nil {
			s.conn.Close()
		}
	}
}

// counts returns what each stream has done.
func (r *run) counts() []Stream {
	all := make([]Stream, len(r.streams))
	for i, s := range r.streams {
		all[i] = Stream{ID: s.id, Sends: s.sends, Bytes: s.done.Load()}
	}
	return all
}

// side returns what this side did. All goroutines of streams have ended.
func (r *run) side() *Side {
	r.mark() // if it ended before
	r.mu.Lock()
	defer r.mu.Unlock()
	side := &Side{Memory: r.memory, CPU: cpu().less(r.cpu), Streams: r.counts(), Times: &Times{}}
	var paths sdp.Stats
	bySDP := false
	for i, s := range r.streams {
		st := &side.Streams[i]
		st.Bytes -= s.base
		st.Ops = st.Bytes / uint64(r.p.Size)
		st.Took = max(time.Duration(s.ended.Load())-r.marked, 0)
		side.Took = max(side.Took, st.Took)
		if r.p.Test == Bandwidth && !s.sends && s.times.Count() == 0 && st.Bytes > 0 { // it was less than two MiB
			s.times.Add(time.Duration(float64(st.Took) * (1 << 20) / float64(st.Bytes)))
		}
		side.Times.Merge(&s.times)
		if r.p.Test == Loaded && r.client {
			if side.Sent == nil {
				side.Sent = &Times{}
			}
			side.Sent.Merge(&s.sent)
		}
		if _, ok := s.conn.(*sdp.Conn); ok {
			bySDP = true
			addDifference(&paths, pathsOf(s.conn), s.paths)
		}
	}
	if bySDP {
		side.Paths = &paths
	}
	return side
}

// err returns why the run ended early, or nil.
func (r *run) err() error {
	for _, s := range r.streams {
		if s.err != nil && !errors.Is(s.err, net.ErrClosed) {
			return s.err
		}
	}
	if cause := context.Cause(r.stopped); !errors.Is(cause, context.Canceled) {
		return cause
	}
	return nil
}

// watch calls observe for each interval until the run is over, and for the rest of the last one.
func (r *run) watch(ctx context.Context, interval time.Duration, observe func(Interval)) {
	before, last := r.counts(), time.Duration(0)
	emit := func(now time.Duration) {
		all := r.counts()
		in := Interval{Start: last, End: now, Omitted: now <= r.p.Omit, Streams: make([]Stream, len(all))}
		for i, s := range all {
			bytes := s.Bytes - before[i].Bytes
			in.Streams[i] = Stream{ID: s.ID, Sends: s.Sends, Bytes: bytes, Ops: bytes / uint64(r.p.Size), Took: now - last}
		}
		observe(in)
		before, last = all, now
	}
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			emit(time.Since(r.begun))
		case <-ctx.Done():
			if now := time.Since(r.begun); now-last > interval/10 {
				emit(now)
			}
			return
		}
	}
}
