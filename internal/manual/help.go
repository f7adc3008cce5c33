package main

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// page is the help of a command or a subcommand.
type page struct {
	name     string // "ntbnet", "ls"
	summary  string // one sentence
	synopsis string // behind "Usage: "
	head     []string
	flags    []flag
	tail     []string
	commands []*page
	words    []string // that may be arguments: "bw"
}

// flag is a flag of a command.
type flag struct {
	short, long string // without dashes; short may be ""
	value       string // name of its value; "" for none
	text        string
}

var (
	flagLine = regexp.MustCompile(`^ +(?:-(\w), )?--([a-z0-9][a-z0-9-]*)(?:\[=[^\]]*\])?(?: (\S+?)(?:\[="[^"]*"\])?)?(?: {2,}(.*))?$`)
	wordLine = regexp.MustCompile(`^  ([a-z]+) {2,}\S`)
	flagHead = regexp.MustCompile(`^([A-Z].* f|F)lags.*:$`)
)

// readHelp runs a binary with --help, and each of its commands.
func readHelp(binary string) (*page, error) {
	name := filepath.Base(binary)
	p, err := askHelp(binary, name)
	if err != nil {
		return nil, err
	}
	command := regexp.MustCompile(`^  ` + regexp.QuoteMeta(name) + ` ([a-z][a-z0-9-]*)(?: .*)?$`)
	for _, line := range p.head {
		m := command.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		c, err := askHelp(binary, name, m[1])
		if err != nil {
			return nil, err
		}
		p.commands = append(p.commands, c)
	}
	return p, nil
}

func askHelp(binary string, words ...string) (*page, error) {
	out, err := exec.Command(binary, append(words[1:], "--help")...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s --help: %w", strings.Join(words, " "), err)
	}
	p := parseHelp(words, string(out))
	if p.summary == "" || len(p.flags) == 0 {
		return nil, fmt.Errorf("%s --help has no sentence, or no flags", strings.Join(words, " "))
	}
	return p, nil
}

// parseHelp takes a help apart: a sentence, the usage, text, flags, and text.
func parseHelp(words []string, text string) *page {
	p := &page{name: words[len(words)-1], synopsis: strings.Join(words, " ") + " [flags]"}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	first, _, _ := strings.Cut(text, "\n\n")
	first = strings.Join(strings.Fields(first), " ")
	for _, prefix := range []string{strings.Join(words, " ") + ": ", strings.Join(words, " ") + " "} {
		first = strings.TrimPrefix(first, prefix)
	}
	first, _, _ = strings.Cut(first, ". ")
	p.summary = strings.TrimSuffix(first, ".")
	inFlags, seen := false, false
	for _, line := range lines {
		usage, isUsage := strings.CutPrefix(line, "Usage: ")
		m := flagLine.FindStringSubmatch(line)
		switch {
		case isUsage:
			p.synopsis = usage
		case flagHead.MatchString(line):
			inFlags, seen = true, true
		case inFlags && m != nil:
			p.flags = append(p.flags, flag{m[1], m[2], m[3], m[4]})
		case inFlags && strings.TrimSpace(line) != "" && strings.HasPrefix(line, "   ") && len(p.flags) > 0:
			p.flags[len(p.flags)-1].text += " " + strings.TrimSpace(line)
		case seen:
			inFlags = inFlags && line == ""
			p.tail = append(p.tail, line)
		default:
			p.head = append(p.head, line)
			if m := wordLine.FindStringSubmatch(line); m != nil {
				p.words = append(p.words, m[1])
			}
		}
	}
	if seen && !slices.ContainsFunc(p.flags, func(f flag) bool { return f.long == "help" }) {
		p.flags = append(p.flags, flag{"h", "help", "", "print the help"})
	}
	return p
}
