package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// manPage returns the manual page of a command, with a section for each subcommand.
func manPage(p *page) string {
	var b strings.Builder
	fmt.Fprintf(&b, ".\\\" Made from the help of %s.\n.TH %s 1 \"%s\" \"ntbnet\" \"User Commands\"\n.SH NAME\n%s \\- %s\n",
		p.name, strings.ToUpper(p.name), day(), roff(p.name), roff(p.summary))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n.SH DESCRIPTION\n", roff(p.synopsis))
	paragraphs(&b, p.head)
	b.WriteString(".SH OPTIONS\n")
	options(&b, p.flags)
	if len(p.commands) > 0 {
		b.WriteString(".SH COMMANDS\n")
	}
	for _, c := range p.commands {
		fmt.Fprintf(&b, ".SS %s\n", roff(c.synopsis))
		paragraphs(&b, c.head)
		options(&b, c.flags)
		paragraphs(&b, c.tail)
	}
	if strings.TrimSpace(strings.Join(p.tail, "")) != "" {
		b.WriteString(".SH NOTES\n")
		paragraphs(&b, p.tail)
	}
	return b.String()
}

// day returns the date of the build: that of SOURCE_DATE_EPOCH, or today.
func day() string {
	t := time.Now()
	if s, err := strconv.ParseInt(os.Getenv("SOURCE_DATE_EPOCH"), 10, 64); err == nil {
		t = time.Unix(s, 0)
	}
	return t.UTC().Format(time.DateOnly)
}

func options(b *strings.Builder, flags []flag) {
	for _, f := range flags {
		b.WriteString(".TP\n")
		if f.short != "" {
			fmt.Fprintf(b, "\\fB\\-%s\\fR, ", roff(f.short))
		}
		fmt.Fprintf(b, "\\fB\\-\\-%s\\fR", roff(f.long))
		if f.value != "" {
			fmt.Fprintf(b, " \\fI%s\\fR", roff(f.value))
		}
		fmt.Fprintf(b, "\n%s\n", roff(f.text))
	}
}

// paragraphs writes text. Lines that are indented stay as they are.
func paragraphs(b *strings.Builder, lines []string) {
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
}

// roff escapes text.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, `-`, `\-`).Replace(s)
	if strings.HasPrefix(s, ".") || strings.HasPrefix(s, "'") {
		s = `\&` + s
	}
	return s
}
