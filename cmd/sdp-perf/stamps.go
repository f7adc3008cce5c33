package main

import (
	"bytes"
	"io"
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

func (s *stamped) Write(p []byte) (n int, err error) {
	for line := range bytes.Lines(p) {
		if !s.within {
			if _, err := io.WriteString(s.w, strftime(s.format, time.Now())); err != nil {
				return n, err
			}
		}
		k, err := s.w.Write(line)
		if n += k; err != nil {
			return n, err
		}
		s.within = line[len(line)-1] != '\n'
	}
	return n, nil
}

// layouts are Go's for the conversions of strftime that people use for a time.
var layouts = map[byte]string{
	'a': "Mon", 'b': "Jan", 'c': "Mon Jan _2 15:04:05 2006", 'd': "02", 'D': "01/02/06", 'F': "2006-01-02", 'H': "15", 'I': "03", 'm': "01",
	'M': "04", 'p': "PM", 'S': "05", 'T': "15:04:05", 'y': "06", 'Y': "2006", 'z': "-0700", 'Z': "MST",
}

// strftime formats t. A conversion that it does not know stays as it is.
func strftime(format string, t time.Time) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] == '%' && i+1 < len(format) {
			if layout, ok := layouts[format[i+1]]; ok {
				b.WriteString(t.Format(layout))
				i++
				continue
			}
		}
		b.WriteByte(format[i])
	}
	return b.String()
}
