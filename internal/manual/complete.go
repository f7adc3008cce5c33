package main

import (
	"fmt"
	"strings"
)

// files reports whether the value of a flag is the path of a file.
func (f flag) files() bool { return f.value == "FILE" || f.value == "DIRECTORY" }

// names returns how a flag is written.
func (f flag) names() (all []string) {
	if f.short != "" {
		all = append(all, "-"+f.short)
	}
	return append(all, "--"+f.long)
}

// bash returns completion for bash: commands and flags; files where a file is wanted.
func bash(p *page) string {
	var b strings.Builder
	function := "_" + strings.ReplaceAll(p.name, "-", "_")
	fmt.Fprintf(&b, "# Completion of %s for bash, made from its help.\n%s() {\n", p.name, function)
	b.WriteString("  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words\n  COMPREPLY=()\n  case ${COMP_WORDS[1]} in\n")
	for _, c := range p.commands {
		fmt.Fprintf(&b, "  %s)\n", c.name)
		bashFlags(&b, c)
		b.WriteString("    ;;\n")
	}
	b.WriteString("  *)\n")
	bashFlags(&b, p)
	b.WriteString("    ;;\n  esac\n")
	var commands []string
	for _, c := range p.commands {
		commands = append(commands, c.name)
	}
	if len(commands) > 0 {
		fmt.Fprintf(&b, "  ((COMP_CWORD > 1)) || words+=' %s'\n", strings.Join(commands, " "))
	}
	fmt.Fprintf(&b, "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n}\ncomplete -o default -F %s %s\n", function, p.name)
	return b.String()
}

func bashFlags(b *strings.Builder, p *page) {
	var words, files, values []string
	for _, f := range p.flags {
		words = append(words, f.names()...)
		switch {
		case f.files():
			files = append(files, f.names()...)
		case f.value != "":
			values = append(values, f.names()...)
		}
	}
	if len(files)+len(values) > 0 {
		b.WriteString("    case $prev in\n")
		if len(files) > 0 {
			fmt.Fprintf(b, "    %s) return ;;\n", strings.Join(files, "|")) // -o default completes files
		}
		if len(values) > 0 {
			fmt.Fprintf(b, "    %s) compopt +o default; return ;;\n", strings.Join(values, "|"))
		}
		b.WriteString("    esac\n")
	}
	fmt.Fprintf(b, "    words='%s'\n", strings.Join(append(words, p.words...), " "))
}

// zsh returns completion for zsh.
func zsh(p *page) string {
	var b strings.Builder
	fmt.Fprintf(&b, "#compdef %s\n# Completion for zsh, made from the help.\n", p.name)
	if len(p.commands) > 0 {
		b.WriteString("if ((CURRENT == 2)) && [[ $words[2] != -* ]]; then\n  local -a commands=(\n")
		for _, c := range p.commands {
			fmt.Fprintf(&b, "    %s\n", quote(c.name+":"+strings.ReplaceAll(c.summary, ":", `\:`)))
		}
		b.WriteString("  )\n  _describe command commands\n  return\nfi\ncase $words[2] in\n")
		for _, c := range p.commands {
			fmt.Fprintf(&b, "%s)\n  shift words\n  ((CURRENT--))\n", c.name)
			zshFlags(&b, c)
			b.WriteString("  ;;\n")
		}
		b.WriteString("*)\n")
		zshFlags(&b, p)
		b.WriteString("  ;;\nesac\n")
		return b.String()
	}
	zshFlags(&b, p)
	return b.String()
}

func zshFlags(b *strings.Builder, p *page) {
	escape := strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`, `:`, `\:`).Replace
	b.WriteString("  _arguments")
	for _, f := range p.flags {
		for _, name := range f.names() {
			spec := name + "[" + escape(f.text) + "]"
			switch {
			case f.files():
				spec += ":" + escape(f.value) + ":_files"
			case f.value != "":
				spec += ":" + escape(f.value) + ":"
			}
			b.WriteString(" \\\n    " + quote(spec))
		}
	}
	if len(p.words) > 0 {
		fmt.Fprintf(b, " \\\n    '1:word:(%s)'", strings.Join(p.words, " "))
	}
	b.WriteString(" \\\n    '*:file:_files'\n")
}

// fish returns completion for fish.
func fish(p *page) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Completion of %s for fish, made from its help.\n", p.name)
	for _, c := range p.commands {
		fmt.Fprintf(&b, "complete -c %s -n __fish_use_subcommand -f -a %s -d %s\n", p.name, c.name, fishQuote(c.summary))
	}
	condition := ""
	if len(p.commands) > 0 {
		condition = "-n __fish_use_subcommand "
	}
	fishFlags(&b, p.name, condition, p)
	for _, c := range p.commands {
		fishFlags(&b, p.name, "-n '__fish_seen_subcommand_from "+c.name+"' ", c)
	}
	return b.String()
}

func fishFlags(b *strings.Builder, name, condition string, p *page) {
	if len(p.words) > 0 {
		fmt.Fprintf(b, "complete -c %s %s-a %s\n", name, condition, fishQuote(strings.Join(p.words, " ")))
	}
	for _, f := range p.flags {
		fmt.Fprintf(b, "complete -c %s %s-l %s", name, condition, f.long)
		if f.short != "" {
			fmt.Fprintf(b, " -s %s", f.short)
		}
		switch {
		case f.files():
			b.WriteString(" -r -F")
		case f.value != "":
			b.WriteString(" -x")
		}
		fmt.Fprintf(b, " -d %s\n", fishQuote(f.text))
	}
}

// quote quotes for a Bourne shell and its kin, fishQuote for fish.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

func fishQuote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}
