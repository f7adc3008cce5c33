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
	Name     string // "ntbnet", "ls"
	Summary  string // one sentence
	Synopsis string // behind "Usage: "
	Head     []string
	Flags    []flag
	Tail     []string
	Commands []*page
	Words    []string // that may be arguments: "bw"
}

// flag is a flag of a command.
type flag struct {
	Short, Long string // without dashes; Short may be ""
	Value       string // name of its value; "" for none
	Text        string
}

// Kind returns what the value of a flag is: a "file", another "value", or "" for none.
func (f flag) Kind() string {
	switch f.Value {
	case "":
		return ""
	case "FILE", "DIRECTORY":
		return "file"
	}
	return "value"
}

// Names returns how a flag is written.
func (f flag) Names() []string {
	if f.Short != "" {
		return []string{"-" + f.Short, "--" + f.Long}
	}
	return []string{"--" + f.Long}
}

// Names returns how the flags of a kind are written, or all if it is "".
func (p *page) Names(kind string) (all []string) {
	for _, f := range p.Flags {
		if kind == "" || kind == f.Kind() {
			all = append(all, f.Names()...)
		}
	}
	return all
}

// part is a page, and when fish completes its flags.
type part struct {
	When string
	*page
}

// Parts returns the page itself, and its commands.
func (p *page) Parts() []part {
	if len(p.Commands) == 0 {
		return []part{{"", p}}
	}
	all := []part{{"-n __fish_use_subcommand ", p}}
	for _, c := range p.Commands {
		all = append(all, part{"-n '__fish_seen_subcommand_from " + c.Name + "' ", c})
	}
	return all
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
	for _, line := range p.Head {
		m := command.FindStringSubmatch(line)
		if m == nil {
			continue
		}
		c, err := askHelp(binary, name, m[1])
		if err != nil {
			return nil, err
		}
		p.Commands = append(p.Commands, c)
	}
	return p, nil
}

func askHelp(binary string, words ...string) (*page, error) {
	out, err := exec.Command(binary, append(words[1:], "--help")...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s --help: %w", strings.Join(words, " "), err)
	}
	p := parseHelp(words, string(out))
	if p.Summary == "" || len(p.Flags) == 0 {
		return nil, fmt.Errorf("%s --help has no sentence, or no flags", strings.Join(words, " "))
	}
	return p, nil
}

// parseHelp takes a help apart: a sentence, the usage, text, flags, and text.
func parseHelp(words []string, text string) *page {
	p := &page{Name: words[len(words)-1], Synopsis: strings.Join(words, " ") + " [flags]"}
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	first, _, _ := strings.Cut(text, "\n\n")
	first = strings.Join(strings.Fields(first), " ")
	for _, prefix := range []string{strings.Join(words, " ") + ": ", strings.Join(words, " ") + " "} {
		first = strings.TrimPrefix(first, prefix)
	}
	first, _, _ = strings.Cut(first, ". ")
	p.Summary = strings.TrimSuffix(first, ".")
	inFlags, seen := false, false
	for _, line := range lines {
		usage, isUsage := strings.CutPrefix(line, "Usage: ")
		m := flagLine.FindStringSubmatch(line)
		switch {
		case isUsage:
			p.Synopsis = usage
		case flagHead.MatchString(line):
			inFlags, seen = true, true
		case inFlags && m != nil:
			p.Flags = append(p.Flags, flag{m[1], m[2], m[3], m[4]})
		case inFlags && strings.TrimSpace(line) != "" && strings.HasPrefix(line, "   ") && len(p.Flags) > 0:
			p.Flags[len(p.Flags)-1].Text += " " + strings.TrimSpace(line)
		case seen:
			inFlags = inFlags && line == ""
			p.Tail = append(p.Tail, line)
		default:
			p.Head = append(p.Head, line)
			if m := wordLine.FindStringSubmatch(line); m != nil {
				p.Words = append(p.Words, m[1])
			}
		}
	}
	if seen && !slices.ContainsFunc(p.Flags, func(f flag) bool { return f.Long == "help" }) {
		p.Flags = append(p.Flags, flag{"h", "help", "", "print the help"})
	}
	return p
}
