package main

import (
	"os"
	"strconv"
	"strings"
	"time"
)

// day returns the date of the build: that of SOURCE_DATE_EPOCH, or today.
func day() string {
	t := time.Now()
	if s, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		t = time.Unix(s, 0)
	}
	return t.UTC().Format(time.DateOnly)
}

// paragraphs returns text of a manual page. Lines that are indented stay as they are.
func paragraphs(lines []string) string {
	var b strings.Builder
	kept, open, first := false, true, true
	for _, line := range lines {
		if strings.TrimSpace(line) == "" {
			open = true
			continue
		}
		if indented := strings.HasPrefix(line, "  "); indented != kept || open {
			if kept {
				b.WriteString(".EE\n")
			}
			if !first {
				b.WriteString(".PP\n")
			}
			if indented {
				b.WriteString(".EX\n")
			}
			kept, open, first = indented, false, false
		}
		b.WriteString(roff(line) + "\n")
	}
	if kept {
		b.WriteString(".EE\n")
	}
	return b.String()
}

// roff escapes text.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, `-`, `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}

// escape escapes text of zsh's _arguments.
var escape = strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`, `:`, `\:`).Replace

// zshValue returns what _arguments is told of a flag's value.
func zshValue(f flag) string {
	switch f.Kind() {
	case "file":
		return ":" + escape(f.Value) + ":_files"
	case "value":
		return ":" + escape(f.Value) + ":"
	}
	return ""
}
