package main

import (
	"bytes"
	"io"
	"time"

	"github.com/ncruces/go-strftime"
)

// stamped returns a writer that begins each line with the time, if the flags ask for it.
func (o *options) stamped(w io.Writer) io.Writer {
	if o.stamps == "" {
		return w
	}
	return &stamped{w: w, format: o.stamps}
}

type stamped struct {
	w      io.Writer
	format string
	within bool // a line
}

func (s *stamped) Write(p []byte) (int, error) {
	var out bytes.Buffer
	for line := range bytes.Lines(p) {
		if !s.within {
			out.WriteString(strftime.Format(s.format, time.Now()))
		}
		out.Write(line)
		s.within = line[len(line)-1] != '\n'
	}
	if _, err := s.w.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}
