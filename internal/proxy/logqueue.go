package proxy

import (
	"io"
	"slices"
	"sync/atomic"
	"time"
)

const (
	queuedLines = 1000            // that wait for their reader at most
	flushTime   = 1 * time.Second // that Close waits for it
)

// LogQueue is a writer for a log that waits for nobody. Lines wait in a queue while their reader is slow, and are
// dropped while it is full, or where they cannot be written.
type LogQueue struct {
	lines   chan []byte
	closing chan struct{} // closed by Close
	written chan struct{} // closed when nothing is written any more
	dropped atomic.Uint64
}

// NewLogQueue returns a queue whose lines go to w.
func NewLogQueue(w io.Writer) *LogQueue {
	q := &LogQueue{lines: make(chan []byte, queuedLines), closing: make(chan struct{}), written: make(chan struct{})}
	go q.run(w)
	return q
}

// Write queues a line, or drops it.
func (q *LogQueue) Write(line []byte) (int, error) {
	select {
	case q.lines <- slices.Clone(line): // the logger uses its buffer again
	default:
		q.dropped.Add(1)
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
	for {
		select {
		case line := <-q.lines:
			q.write(w, line)
		case <-q.closing:
			for {
				select {
				case line := <-q.lines:
					q.write(w, line)
				default:
					return
				}
			}
		}
	}
}

// write writes a line, or drops it: its reader has gone, or a disk is full.
func (q *LogQueue) write(w io.Writer, line []byte) {
	if _, err := w.Write(line); err != nil {
		q.dropped.Add(1)
	}
}
