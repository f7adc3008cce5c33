package main

import (
	"bytes"
	"io"
	"slices"
	"strings"
	"time"
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
			out.WriteString(strftime(s.format, time.Now()))
		}
		out.Write(line)
		s.within = line[len(line)-1] != '\n'
	}
	if _, err := s.w.Write(out.Bytes()); err != nil {
		return 0, err
	}
	return len(p), nil
}

// layouts are Go's for the conversions of strftime that people use for a time.
var layouts = []string{
	"%%", "%", "%a", "Mon", "%b", "Jan", "%c", "Mon Jan _2 15:04:05 2006", "%d", "02", "%D", "01/02/06", "%F", "2006-01-02", "%H", "15", "%I", "03",
	"%m", "01", "%M", "04", "%p", "PM", "%S", "05", "%T", "15:04:05", "%y", "06", "%Y", "2006", "%z", "-0700", "%Z", "MST",
}

// strftime formats t. A conversion that it does not know stays as it is.
func strftime(format string, t time.Time) string {
	now := slices.Clone(layouts)
	for i := 1; i < len(now); i += 2 {
		now[i] = t.Format(now[i])
	}
	return strings.NewReplacer(now...).Replace(format)
}
