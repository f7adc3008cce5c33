package meter

import (
	"bytes"
	"context"
	"errors"
	"net"
	"reflect"
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
	Memory  int64         `json:"memory,omitempty"` // what the connections of Idle take; 0 if it is not known
	Paths   *sdp.Stats    `json:"paths,omitempty"`  // of all streams by SDP
	// Times are of single operations; in Bandwidth, of each MiB that this side received.
	Times Times `json:"times"`
	// Sent has, for Loaded, the times since the operations began; Times has those since they were
	// due, which corrects for coordinated omission.
	Sent Times `json:"sent"`
}

// Interval is what one side did in a part of a run. Times are since the run began while what is done is omitted, and then
// since the measurement began.
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
	dial    func(context.Context) (net.Conn, error) // of a client
	streams []*stream
	begun   time.Time
	stop    context.CancelCauseFunc // no operation begins any more
	stopped context.Context
	halt    atomic.Bool  // stopped, for the goroutines of the streams
	left    atomic.Int64 // bytes that are still to be sent, if Params.Bytes is set
	work    sync.WaitGroup
	memory  int64         // of Idle
	ones    func() []byte // a message for all streams, which nobody changes

	// mark begins the measurement: what was done before does not count. The following are set by it.
	mark     func()
	marked   time.Duration
	cpu      CPU
	counting atomic.Bool // for the goroutines of the streams

	answers answers

	// mu guards the following.
	mu       sync.Mutex
	attached int   // of a server: streams that are there, or all, if no more may come
	pieces   Times // of each MiB that was received
}

// answers are the connections of Connect that a server answers.
type answers struct {
	n    atomic.Int32
	over context.Context // ends with the control connection, and so do they
	end  context.CancelFunc
}

func newRun(p Params, client bool) *run {
	if p.Test == Idle {
		p.Size = 1
	}
	r := &run{p: p, client: client}
	stopped, cancel := context.WithCancelCause(context.Background())
	r.stopped, r.stop = stopped, func(cause error) {
		r.halt.Store(true) // first: a sender whose pause ends by this must not send any more
		cancel(cause)
	}
	r.answers.over, r.answers.end = context.WithCancel(context.Background())
	r.ones = sync.OnceValue(func() []byte { return bytes.Repeat([]byte{1}, p.Size) }) // pages that were never written are all the same one
	r.left.Store(int64(min(p.Bytes, 1<<62)))
	r.mark = sync.OnceFunc(func() {
		for _, s := range r.streams {
			if p.Omit > 0 { // else all counts, that of Connect before this side began too
				s.base = s.done.Load()
			}
			if c, ok := s.conn.(*sdp.Conn); ok {
				s.paths = c.Stats()
			}
		}
		r.cpu, r.marked = cpu(), time.Since(r.begun)
		r.counting.Store(true)
	})
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
	r.measureMemory(-1)
	return r
}

// begin starts the work of this side. It reports intervals until the function that it returns is called.
func (r *run) begin(o Observer, to *Result) (watched func()) {
	r.begun = time.Now()
	if r.p.Omit == 0 {
		r.mark()
	} else {
		r.after(r.p.Omit, r.mark)
	}
	if r.p.Time > 0 {
		r.after(r.p.Omit+r.p.Time, func() { r.stop(nil) })
	}
	if r.p.Test == Idle && r.client {
		r.work.Go(r.idles)
	} else {
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
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	if o.Every > 0 && o.Interval != nil {
		watching.Go(func() { r.watch(ctx, o, to) })
	}
	return func() {
		cancel()
		watching.Wait()
	}
}

// after calls f after a time, unless the run is stopped before.
func (r *run) after(d time.Duration, f func()) {
	timer := time.AfterFunc(d, f)
	context.AfterFunc(r.stopped, func() { timer.Stop() })
}

// serve does what this side does on a stream.
func (r *run) serve(s *stream) (err error) {
	switch {
	case r.p.Test == verifying:
		return r.verify(s)
	case r.p.Test == Connect && r.client:
		return r.connects(s)
	case r.p.Test == Connect:
		<-r.stopped.Done() // each connection is answered as it comes
		return nil
	case r.p.Test == Bandwidth && !s.sends:
		return r.sink(s)
	case r.p.Test == Bandwidth:
		err = r.source(s)
	case !r.client:
		return r.echo(s)
	default:
		err = r.asks(s)
	}
	if err != nil {
		return err
	}
	return closeWrite(s.conn)
}

// measureMemory adds or subtracts, for Idle, the memory of this process.
func (r *run) measureMemory(sign int64) {
	if r.p.Test == Idle {
		r.memory += sign * memory()
	}
}

// ends waits until all streams have ended, or until ctx ends. Then it closes them.
func (r *run) ends(ctx context.Context) {
	defer context.AfterFunc(ctx, r.close)()
	r.work.Wait()
}

func (r *run) close() {
	for _, s := range r.streams {
		if s.conn != nil {
			s.conn.Close()
		}
	}
}

// addPiece adds the time that n bytes took, as that of a MiB.
func (r *run) addPiece(d time.Duration, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pieces.Add(time.Duration(float64(d) * (1 << 20) / float64(n)))
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
	used := cpu()
	side := &Side{Memory: r.memory, CPU: CPU{used.User - r.cpu.User, used.System - r.cpu.System}, Streams: r.counts()}
	for i, s := range r.streams {
		st := &side.Streams[i]
		st.Bytes -= s.base
		st.Ops = st.Bytes / uint64(r.p.Size)
		st.Took = max(time.Duration(s.ended.Load())-r.marked, 0)
		side.Took = max(side.Took, st.Took)
		side.Times.Merge(&s.times)
		side.Sent.Merge(&s.sent)
		if c, ok := s.conn.(*sdp.Conn); ok {
			if side.Paths == nil {
				side.Paths = &sdp.Stats{}
			}
			sum, after, before := reflect.ValueOf(side.Paths).Elem(), reflect.ValueOf(c.Stats()), reflect.ValueOf(s.paths)
			for i := range sum.NumField() {
				sum.Field(i).SetUint(sum.Field(i).Uint() + after.Field(i).Uint() - before.Field(i).Uint())
			}
		}
	}
	if r.pieces.Count() == 0 { // it was less than two MiB
		for _, st := range side.Streams {
			if r.p.Test == Bandwidth && !st.Sends && st.Bytes > 0 {
				r.addPiece(st.Took, int(st.Bytes))
			}
		}
	}
	side.Times.Merge(&r.pieces)
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

// watch reports each interval until ctx ends, and the rest of the last one.
func (r *run) watch(ctx context.Context, o Observer, to *Result) {
	before, last := r.counts(), time.Duration(0)
	ticker := time.NewTicker(o.Every)
	defer ticker.Stop()
	for running := true; running; {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			running = false
		}
		now := time.Since(r.begun)
		if !running && now-last <= o.Every/10 {
			return
		}
		all := r.counts()
		in := Interval{Start: last, End: now, Omitted: (last+now)/2 < r.p.Omit}
		if !in.Omitted {
			in.Start, in.End = max(last-r.p.Omit, 0), now-r.p.Omit
		}
		for i, s := range all {
			s.Bytes -= before[i].Bytes
			s.Ops, s.Took = s.Bytes/uint64(r.p.Size), now-last
			in.Streams = append(in.Streams, s)
		}
		before, last = all, now
		to.Intervals = append(to.Intervals, in)
		o.Interval(to, in)
	}
}
