package proxy

import (
	"io"
	"sync/atomic"
	"time"
)

const (
	// queuedLines is how many lines may wait for their reader.
	queuedLines = 1000
	// gatherTime is how long a line waits for others, so that one write has them all.
	gatherTime = 10 * time.Millisecond
	// flushTime is how long Close waits for the reader.
	flushTime = 1 * time.Second
	// wholeWrite is how much a pipe takes whole (PIPE_BUF of Linux), so that no line of another process comes in between.
	wholeWrite = 4096
)

// LogQueue is a writer for a log that waits for nobody. Lines wait in a queue while their reader is slow, and are
// dropped while it is full, or where they cannot be written.
type LogQueue struct {
	lines   chan string
	closing chan struct{} // closed by Close
	written chan struct{} // closed when nothing is written any more
	dropped atomic.Int64
}

// NewLogQueue returns a queue whose lines go to w.
func NewLogQueue(w io.Writer) *LogQueue {
	q := &LogQueue{lines: make(chan string, queuedLines), closing: make(chan struct{}), written: make(chan struct{})}
	go q.run(w)
	return q
}

// Write queues a line, or drops it.
func (q *LogQueue) Write(line []byte) (int, error) {
	select {
	case q.lines <- string(line):
	default:
		q.dropped.Add(1)
	}
	return len(line), nil
}

// Dropped returns how many lines were dropped.
func (q *LogQueue) Dropped() int64 { return q.dropped.Load() }

// Close returns when all lines are written, or after a second. It is called once. Later lines are lost.
func (q *LogQueue) Close() {
	close(q.closing)
	select {
	case <-q.written:
	case <-time.After(flushTime):
	}
}

// run writes lines together: as many as fit into a write, or have come within gatherTime.
func (q *LogQueue) run(w io.Writer) {
	defer close(q.written)
	var together []byte
	var n int64 // lines in together
	write := func() {
		if n == 0 {
			return
		}
		if _, err := w.Write(together); err != nil { // its reader has gone, or a disk is full
			q.dropped.Add(n)
		}
		together, n = together[:0], 0
	}
	defer write()
	var gathered <-chan time.Time // nil while there is no line
	for closing := q.closing; closing != nil || len(q.lines) > 0; {
		select {
		case line := <-q.lines:
			if len(together)+len(line) > wholeWrite {
				write()
			}
			if n == 0 {
				gathered = time.After(gatherTime)
			}
			together, n = append(together, line...), n+1
		case <-gathered:
			write()
			gathered = nil
		case <-closing:
			closing = nil
		}
	}
}
