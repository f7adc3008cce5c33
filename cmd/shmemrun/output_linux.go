package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"strconv"
	"sync"
	"time"
)

// maxLine is the longest line that is kept in one piece, in bytes.
const maxLine = 1 << 20

func prefixOf(pe int) []byte { return append(strconv.AppendInt([]byte{'['}, int64(pe), 10), "] "...) }

// lines writes one PE's output to a file that all PEs share.
type lines struct {
	mu     *sync.Mutex // held while a line is written
	lost   *error      // why the file could not be written; guarded by mu
	to     io.Writer
	prefix []byte
	ended  context.Context // ends when the PE does
	grace  time.Duration   // after that, how long processes to which the PE has left its output may write
	line   []byte          // the prefix, and the part of a line that was read
}

// copy copies until the end of r, and closes it. When the output cannot be written
// any more, it closes it for the PE too.
func (l *lines) copy(r *os.File) {
	defer r.Close()
	defer context.AfterFunc(l.ended, func() { r.SetReadDeadline(time.Now().Add(l.grace)) })()
	in := bufio.NewReaderSize(r, 64<<10)
	l.line = append(l.line[:0], l.prefix...)
	for idle := false; ; {
		part, err := in.ReadSlice('\n')
		idle = idle && len(part) == 0
		if !l.add(part) {
			return
		}
		switch {
		case err == nil, errors.Is(err, bufio.ErrBufferFull):
		case errors.Is(err, os.ErrDeadlineExceeded) && !idle:
			// Perhaps the time passed while a line was being written.
			idle = true
			r.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		default:
			if len(l.line) > len(l.prefix) {
				l.add([]byte{'\n'})
			}
			return
		}
	}
}

// add adds a part to the line, and writes the line when it is complete. It returns
// false when it cannot write.
func (l *lines) add(part []byte) bool {
	l.line = append(l.line, part...)
	whole := bytes.HasSuffix(part, []byte{'\n'})
	if !whole && len(l.line) < maxLine {
		return true
	}
	if !whole {
		l.line = append(l.line, '\n')
	}
	l.mu.Lock()
	_, err := l.to.Write(l.line)
	if err != nil {
		*l.lost = err
	}
	l.mu.Unlock()
	l.line = append(l.line[:0], l.prefix...)
	return err == nil
}
