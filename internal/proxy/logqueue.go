package proxy

import (
	"bytes"
	"io"
	"sync"
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
	come    chan struct{} // has room for one; there are lines
	closing chan struct{} // closed by Close
	written chan struct{} // closed when nothing is written any more
	dropped atomic.Uint64

	mu    sync.Mutex
	lines []byte // that wait to be written; guarded by mu
	n     int    // lines that wait or are being written; guarded by mu
}

// NewLogQueue returns a queue whose lines go to w.
func NewLogQueue(w io.Writer) *LogQueue {
	q := &LogQueue{come: make(chan struct{}, 1), closing: make(chan struct{}), written: make(chan struct{})}
	go q.run(w)
	return q
}

// Write queues a line, or drops it.
func (q *LogQueue) Write(line []byte) (int, error) {
	q.mu.Lock()
	full := q.n == queuedLines
	if !full {
		q.n++
		q.lines = append(q.lines, line...)
	}
	q.mu.Unlock()
	if full {
		q.dropped.Add(1)
	} else {
		wake(q.come)
	}
	return len(line), nil
}

// Dropped returns how many lines were dropped.
func (q *LogQueue) Dropped() uint64 { return q.dropped.Load() }

// Close returns when all lines are written, or after a second. It is called once. Later lines are lost.
func (q *LogQueue) Close() {
	close(q.closing)
	select {
	case <-q.written:
	case <-time.After(flushTime):
	}
}

func (q *LogQueue) run(w io.Writer) {
	defer close(q.written)
	var lines []byte // as large as the most that have waited
	for open := true; open; {
		select {
		case <-q.come:
			select {
			case <-time.After(gatherTime):
			case <-q.closing:
			}
		case <-q.closing:
			open = false
		}
		q.mu.Lock()
		lines, q.lines = q.lines, lines[:0]
		q.mu.Unlock()
		q.write(w, lines)
	}
}

// write writes lines, or drops them: their reader has gone, or a disk is full.
func (q *LogQueue) write(w io.Writer, lines []byte) {
	for len(lines) > 0 {
		size := min(len(lines), wholeWrite)
		if end := bytes.LastIndexByte(lines[:size], '\n'); end >= 0 {
			size = end + 1
		}
		n := bytes.Count(lines[:size], []byte("\n"))
		if _, err := w.Write(lines[:size]); err != nil {
			q.dropped.Add(uint64(n))
		}
		lines = lines[size:]
		q.mu.Lock()
		q.n -= n
		q.mu.Unlock()
	}
}
