package meter

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"time"
)

// take takes the next message from what is left to be sent. It returns 0 at the end.
func (r *run) take() int {
	if r.halt.Load() {
		return 0
	}
	n := int64(r.p.Size)
	if r.p.Bytes > 0 {
		n = min(n, r.left.Add(-n)+n)
	}
	return int(max(n, 0))
}

// source sends until it is stopped or all is sent.
func (r *run) source(s *stream) error {
	buf := r.ones()
	var due, pause time.Duration
	burst := max(r.p.Burst, 1)
	if r.p.Rate > 0 {
		pause = time.Duration(float64(r.p.Size*burst) * 8 / r.p.Rate * 1e9)
	}
	for i := 0; ; i++ {
		if pause > 0 && i%burst == 0 {
			r.sleep(due)
			due = max(due+pause, time.Since(r.begun)-time.Second) // what was missed is made up, for a second
		}
		n := r.take()
		if n == 0 {
			return nil
		}
		n, err := s.conn.Write(buf[:n])
		s.done.Add(uint64(n))
		if r.halt.Load() {
			return nil // the other side may have closed
		}
		if err != nil {
			return err
		}
	}
}

// sleep waits until a time since the begin, or until the run is stopped.
func (r *run) sleep(until time.Duration) {
	if d := until - time.Since(r.begun); d > 0 {
		ctx, end := context.WithTimeout(r.stopped, d)
		<-ctx.Done()
		end()
	}
}

// readSize is the least size of the buffer of a receiver, unless there are many.
const readSize = 64 << 10

// sink receives until the other side has sent all.
func (r *run) sink(s *stream) error {
	buf := make([]byte, r.p.sinkSize())
	const mib = 1 << 20
	piece, last, counted := 0, time.Duration(0), false
	for {
		n, err := s.conn.Read(buf)
		s.done.Add(uint64(n))
		if piece += n; piece >= mib {
			now := time.Since(r.begun)
			if counted {
				r.addPiece(now-last, piece)
			}
			last, piece, counted = now, 0, r.counting.Load()
		}
		switch {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
	}
}

// echo sends each message back. It does not allocate.
func (r *run) echo(s *stream) error {
	buf := make([]byte, r.p.Size)
	c := io.Reader(s.conn)
	for {
		switch _, err := io.ReadFull(c, buf); {
		case err == io.EOF:
			return nil
		case err != nil:
			return err
		}
		s.done.Add(uint64(len(buf))) // the client may be at its end as soon as it has the answer
		if _, err := s.conn.Write(buf); err != nil {
			return err
		}
	}
}

// asks makes round trips, and checks each byte that comes back. It does not allocate.
func (r *run) asks(s *stream) error {
	out, in := bytes.Repeat([]byte{1}, r.p.Size), make([]byte, r.p.Size)
	var due, pause time.Duration
	if r.p.Test == Loaded {
		pause = time.Duration(1e9 / r.p.Rate)
	}
	last := time.Since(r.begun)
	for i := uint64(1); r.take() > 0 || i == 1 && r.p.Bytes == 0; i++ { // one at least, however short the time is
		if len(out) >= 8 {
			binary.LittleEndian.PutUint64(out, i)
		} else {
			out[0] = byte(i)
		}
		if pause > 0 {
			if last = r.until(due); last < 0 {
				return nil
			}
		}
		if err := r.ask(s, out, in); err != nil {
			return err
		}
		now := time.Since(r.begun)
		if r.counting.Load() {
			from := last
			if pause > 0 {
				from = due
				s.sent.Add(now - last)
			}
			s.times.Add(now - from)
		}
		due += pause
		last = now
	}
	return nil
}

// idles uses each connection once, and waits until the run is over.
func (r *run) idles() {
	in := make([]byte, 1)
	for _, s := range r.streams {
		if s.err = r.ask(s, []byte{1}, in); s.err != nil {
			r.stop(s.err)
			break
		}
	}
	<-r.stopped.Done()
	r.measureMemory(1)
	for _, s := range r.streams {
		s.ended.Store(int64(time.Since(r.begun)))
		_ = closeWrite(s.conn) // if it fails, the connection has ended
	}
}

// until waits for a time since the begin, without a sleep at its end, which would be measured too.
// It returns the time, or -1 if the run is stopped. It yields only to other streams, since a yield has the
// runtime wake another thread of this process, which takes the server's processor.
func (r *run) until(due time.Duration) time.Duration {
	const early = 2 * time.Millisecond
	if due-time.Since(r.begun) > early {
		r.sleep(due - early)
	}
	for !r.halt.Load() {
		if now := time.Since(r.begun); now >= due {
			return now
		}
		if r.p.Streams > 1 {
			runtime.Gosched()
		}
	}
	return -1
}

// ask makes one round trip.
func (r *run) ask(s *stream, out, in []byte) error {
	if _, err := s.conn.Write(out); err != nil {
		return err
	}
	if _, err := io.ReadFull(s.conn, in); err != nil {
		return noEOF(err)
	}
	if !bytes.Equal(in, out) {
		return fmt.Errorf("wrong data in answer %d of stream %d", s.done.Load()/uint64(len(out))+1, s.id)
	}
	s.done.Add(uint64(len(out)))
	return nil
}

// connects makes connections, one after the other. The preamble is the request.
func (r *run) connects(s *stream) error {
	in := make([]byte, r.p.Size)
	for r.take() > 0 {
		before := time.Since(r.begun)
		c, err := r.dial(r.stopped)
		if r.stopped.Err() != nil {
			if err == nil {
				c.Close()
			}
			return nil
		}
		if err != nil {
			return err
		}
		_, err = io.ReadFull(c, in)
		if l, ok := c.(*net.TCPConn); ok {
			// The port is free at once. Otherwise there are none left after some seconds.
			err = errors.Join(err, l.SetLinger(0))
		}
		if err := errors.Join(noEOF(err), c.Close()); err != nil {
			return err
		}
		s.done.Add(uint64(len(in)))
		if r.counting.Load() {
			s.times.Add(time.Since(r.begun) - before)
		}
	}
	return nil
}

// verify sends and receives pseudo-random bytes, and checks all that come.
func (r *run) verify(s *stream) error {
	out, in := uint64(toServer), uint64(toClient)
	if !r.client {
		out, in = in, out
	}
	seed := r.p.Seed + uint64(s.id)
	sent := make(chan error, 1)
	go func() { sent <- newPattern(seed, out).write(s.conn, r.p.Bytes) }()
	bad, err := newPattern(seed, in).check(s.conn, r.p.Bytes)
	if err != nil {
		s.conn.Close() // wakes the writer
	}
	err = cmp.Or(err, <-sent)
	if bad != "" { // this explains whatever else went wrong after it
		return fmt.Errorf("wrong data on stream %d: %s", s.id, bad)
	}
	s.done.Add(r.p.Bytes)
	return noEOF(err)
}

// noEOF replaces io.EOF in the middle of an exchange by an error that says so.
func noEOF(err error) error {
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return errors.New("the other side closed the connection")
	}
	return err
}
