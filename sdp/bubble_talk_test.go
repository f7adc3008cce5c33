package sdp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// pattern is the source of the bytes of all connections. Each has a piece of its own.
var pattern = func() []byte {
	b := make([]byte, 1<<20)
	rand.NewChaCha8([32]byte{1}).Read(b)
	return b
}()

// ledger is what both endpoints of a connection know of each other.
type ledger struct {
	id       uint32 // of the talk, and of the try
	talk     *bubbleTalk
	progress atomic.Int64
	ways     [2]struct {
		began atomic.Bool // the writer knows of the connection
		sent  int         // valid when ended is closed
		firm  int         // sent before the writer closed the connection; likewise
		ended chan struct{}
		reset atomic.Bool // the writer's own Write has returned ECONNRESET
	}
	harsh atomic.Bool // an endpoint has closed before everything was sent
}

// bytesOf returns n bytes of a direction of the connection, from off on.
func (l *ledger) bytesOf(way, off, n int) []byte {
	at := (int(l.id)*2+way)*7919%(len(pattern)/2) + off
	return pattern[at : at+n]
}

func isTimeout(err error) bool {
	var e net.Error
	return errors.As(err, &e) && e.Timeout()
}

// at records what the calling goroutine does for the connection until done is
// called.
func (w *bubbleWorld) at(l *ledger, what string) (set func(string), done func()) {
	p := &what
	w.mu.Lock()
	defer w.mu.Unlock()
	w.doing[p] = l
	return func(s string) {
			w.mu.Lock()
			defer w.mu.Unlock()
			*p = s
		}, func() {
			w.mu.Lock()
			defer w.mu.Unlock()
			delete(w.doing, p)
		}
}

func (l *ledger) moved(w *bubbleWorld) { l.progress.Store(int64(w.now())) }

// dial makes the connection of a talk. If that failed for a reason, it tries again.
func (w *bubbleWorld) dial(talk uint32, t *bubbleTalk) {
	time.Sleep(t.at)
	for try := range uint32(5) {
		n := w.node(t.from)
		l := &ledger{id: talk<<8 | try, talk: t}
		for i := range l.ways {
			l.ways[i].ended = make(chan struct{})
		}
		l.moved(w)
		w.mu.Lock()
		w.ledgers[l.id] = l
		w.mu.Unlock()
		_, done := w.at(l, fmt.Sprintf("dial from node %d to node %d", t.from, t.to))
		n.gate()
		if n.closed.Load() || w.ending.Load() {
			done()
			return
		}
		begin := time.Now()
		c, err := n.dialOf(t.to, t.limit)
		took := time.Since(begin)
		done()
		if took > t.limit+slack {
			w.fail("a dial with %v took %v: %v", t.limit, took, err)
		}
		if err == nil {
			w.talk(n, l, c.(*Conn), 0)
			return
		}
		switch {
		case n.closed.Load():
			return
		case isTimeout(err):
			if took < t.limit {
				w.fail("a dial with %v timed out after %v: %v", t.limit, took, err)
			}
			if t.limit > time.Second && !w.plan.has(stops) && !w.broken.Load() {
				w.fail("dial of node %d from node %d: %v", t.to, t.from, err)
			}
		case w.broken.Load() && (errors.Is(err, syscall.EHOSTUNREACH) || errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET)):
		default:
			w.fail("dial of node %d from node %d: %v", t.to, t.from, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// serve serves the other endpoint.
func (w *bubbleWorld) serve(n *bubbleNode, c *Conn) {
	none := &ledger{}
	none.moved(w)
	_, done := w.at(none, fmt.Sprintf("first bytes on node %d", n.number))
	var b [4]byte
	_, err := io.ReadFull(c, b[:])
	done()
	if err != nil {
		// The dial was given up, or the link is gone.
		w.timed(closeLimit, "Close", func() { c.Close() })
		return
	}
	w.mu.Lock()
	l := w.ledgers[binary.LittleEndian.Uint32(b[:])]
	w.mu.Unlock()
	if l == nil {
		w.fail("a connection on node %d begins with %x", n.number, b)
		c.Close()
		return
	}
	w.talk(n, l, c, 1)
}

// talk is one endpoint's part in a connection.
func (w *bubbleWorld) talk(n *bubbleNode, l *ledger, c *Conn, end int) {
	t := l.talk
	if l.ways[end].began.Swap(true) {
		w.fail("connection %d is on node %d a second time", l.id, n.number)
		c.Close()
		return
	}
	l.moved(w)
	var ways sync.WaitGroup
	over := make(chan struct{})
	closing := &atomic.Bool{} // this endpoint has ended it early
	ways.Go(func() { w.write(n, l, c, end, closing) })
	ways.Go(func() { w.read(n, l, c, end, closing) })
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		if t.ending == orderly || t.ender != end {
			return
		}
		select {
		case <-time.After(t.endAfter):
		case <-over:
			return
		}
		l.harsh.Store(true)
		closing.Store(true)
		limit := closeLimit
		if t.ending == aborted {
			c.SetLinger(0)
			limit = slack
		}
		w.timed(limit, "Close of a connection in use", func() { c.Close() })
	}()
	ways.Wait()
	close(over)
	<-ended
	_, done := w.at(l, fmt.Sprintf("close on node %d", n.number))
	defer done()
	n.gate()
	w.timed(closeLimit, "Close", func() { c.Close() })
	l.moved(w)
}

// excused reports whether an error of a connection has a reason.
func (w *bubbleWorld) excused(n *bubbleNode, l *ledger, closing *atomic.Bool, err error) bool {
	switch {
	case errors.Is(err, net.ErrClosed):
		return closing.Load() || n.closed.Load()
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, syscall.ENOTCONN):
		return l.harsh.Load() || w.broken.Load()
	}
	return false
}

// timeLeft sets a deadline if there is to be one. It returns a function that checks
// that a call ends by the deadline, and that reports whether the call failed because
// of it.
func (w *bubbleWorld) timeLeft(most *time.Duration, set func(time.Time) error) (check func(what string, err error) bool) {
	if *most == 0 {
		return func(string, error) bool { return false }
	}
	at := time.Now().Add(*most)
	set(at)
	return func(what string, err error) bool {
		late := time.Since(at)
		if late > slack {
			w.fail("%s returned %v after its deadline: %v", what, late, err)
		}
		if !isTimeout(err) {
			return false
		}
		if late < 0 {
			w.fail("%s timed out %v before its deadline", what, -late)
		}
		*most = min(2**most, time.Second)
		set(time.Time{})
		return true
	}
}

func pauseOf(rng *rand.Rand, most time.Duration) {
	if most > 0 && rng.IntN(3) == 0 {
		time.Sleep(time.Duration(rng.Int64N(int64(most))))
	}
}

// write writes one direction.
func (w *bubbleWorld) write(n *bubbleNode, l *ledger, c *Conn, way int, closing *atomic.Bool) {
	plan := l.talk.ways[way]
	set, done := w.at(l, "")
	defer done()
	rng := rand.New(rand.NewPCG(w.plan.seed, uint64(l.id)<<8+uint64(way)))
	self := &l.ways[way]
	defer close(self.ended)
	if way == 0 {
		var b [4]byte
		binary.LittleEndian.PutUint32(b[:], l.id)
		set(fmt.Sprintf("first bytes of node %d", n.number))
		if _, err := c.Write(b[:]); err != nil {
			if !w.excused(n, l, closing, err) {
				w.fail("write on node %d: %v", n.number, err)
			}
			return
		}
	}
	for self.sent < plan.total {
		n.gate()
		size := min(1+rng.IntN(plan.most), plan.total-self.sent)
		p := l.bytesOf(way, self.sent, size)
		set(fmt.Sprintf("write on node %d, %d of %d bytes", n.number, self.sent, plan.total))
		check := w.timeLeft(&plan.writeDeadline, c.SetWriteDeadline)
		k, err := 0, error(nil)
		if plan.lease {
			var b []byte
			if b, err = c.Reserve(size); err == nil {
				k = copy(b, p)
				check("Reserve", nil)
				pauseOf(rng, plan.pause)
				c.Commit(k)
			}
		} else {
			k, err = c.Write(p)
		}
		self.sent += k
		if !closing.Load() {
			self.firm = self.sent
		}
		if k > 0 {
			l.moved(w)
		}
		if err != nil || !plan.lease {
			if check("write", err) {
				continue
			}
		}
		if err != nil {
			self.reset.Store(errors.Is(err, syscall.ECONNRESET))
			if !w.excused(n, l, closing, err) {
				w.fail("write on node %d of %s: %v", n.number, c.RemoteAddr(), err)
			}
			return
		}
		pauseOf(rng, plan.pause)
	}
	set(fmt.Sprintf("close the writing end on node %d", n.number))
	w.timed(slack, "CloseWrite", func() {
		if err := c.CloseWrite(); err != nil && !w.excused(n, l, closing, err) {
			w.fail("CloseWrite on node %d: %v", n.number, err)
		}
	})
	l.moved(w)
}

// read reads the other direction, and compares.
func (w *bubbleWorld) read(n *bubbleNode, l *ledger, c *Conn, end int, closing *atomic.Bool) {
	way := 1 - end
	plan := l.talk.ways[way]
	set, done := w.at(l, "")
	defer done()
	rng := rand.New(rand.NewPCG(w.plan.seed, uint64(l.id)<<8+2+uint64(way)))
	p := make([]byte, plan.mostRead)
	got := 0
	for {
		n.gate()
		set(fmt.Sprintf("read on node %d, %d bytes have come", n.number, got))
		check := w.timeLeft(&plan.readDeadline, c.SetReadDeadline)
		k, err := 0, error(nil)
		b := p
		if plan.peek {
			if b, err = c.Peek(); err == nil {
				k = len(b)
			}
		} else {
			k, err = c.Read(p[:1+rng.IntN(len(p))])
		}
		timedOut := check("read", err)
		if got+k > plan.total || !bytes.Equal(b[:k], l.bytesOf(way, got, k)) {
			w.fail("wrong bytes on node %d from %s, %d after the first %d of %d", n.number, c.RemoteAddr(), k, got, plan.total)
			return
		}
		if plan.peek && err == nil {
			k = 1 + rng.IntN(k)
			pauseOf(rng, plan.pause)
			c.Discard(k)
		}
		got += k
		if k > 0 {
			l.moved(w)
		}
		switch {
		case timedOut:
			continue
		case err == io.EOF:
			w.complete(n, l, c, way, got)
			return
		case err != nil:
			if !w.excused(n, l, closing, err) {
				w.fail("read on node %d from %s, after %d of %d bytes: %v", n.number, c.RemoteAddr(), got, plan.total, err)
			}
			return
		}
		pauseOf(rng, plan.pause)
	}
}

// complete fails unless the other endpoint has sent exactly what came before
// io.EOF. A reset is an error of one call alone, as with TCP: after a Write has returned
// ECONNRESET, Read returns io.EOF. Then what the other endpoint wrote while it closed the
// connection, or committed after that, may be missing.
func (w *bubbleWorld) complete(n *bubbleNode, l *ledger, c *Conn, way, got int) {
	if !l.ways[way].began.Load() { // it closed before it knew what to send
		if got != 0 {
			w.fail("node %d has read %d bytes from %s, which has sent none", n.number, got, c.RemoteAddr())
		}
		return
	}
	select {
	case <-l.ways[way].ended:
	case <-time.After(stuckAfter):
		w.fail("node %d has read io.EOF from %s, which goes on writing\n%s", n.number, c.RemoteAddr(), bubbleOf(ownBubble()))
		return
	}
	sent := l.ways[way].sent
	if sent > got && got >= l.ways[way].firm {
		time.Sleep(slack) // a Write that has returned notes why
		if l.ways[1-way].reset.Load() {
			return
		}
	}
	if sent != got {
		w.fail("node %d has read %d bytes and io.EOF from %s, which has sent %d", n.number, got, c.RemoteAddr(), sent)
	}
}
