package main

import (
	"embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"text/template"
)

// places are the files of a command, below the directory.
var places = []struct {
	path     string // with the command's name for %s
	template string
}{
	{"man/man1/%s.1", "man.tmpl"},
	{"bash-completion/completions/%s", "bash.tmpl"},
	{"zsh/site-functions/_%s", "zsh.tmpl"},
	{"fish/vendor_completions.d/%s.fish", "fish.tmpl"},
}

//go:embed *.tmpl
var texts embed.FS

var templates = template.Must(template.New("").Funcs(template.FuncMap{
	"join": strings.Join, "upper": strings.ToUpper,
	"day": day, "roff": roff, "paragraphs": paragraphs,
	"quote":      func(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }, // for a Bourne shell and its kin
	"underlined": func(s string) string { return strings.ReplaceAll(s, "-", "_") },
	"colons":     func(s string) string { return strings.ReplaceAll(s, ":", `\:`) },
	"escape":     escape,
	"zshValue":   zshValue,
	"fish":       func(s string) string { return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'" },
}).ParseFS(texts, "*.tmpl"))

func main() {
	if len(os.Args) < 3 {
		fmt.Fprintln(os.Stderr, "manual: want a directory, and the paths of binaries, as in: go run ./internal/manual share bin/*")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2:]); err != nil {
		fmt.Fprintln(os.Stderr, "manual:", err)
		os.Exit(1)
	}
}

// run writes the files of binaries below a directory.
func run(dir string, binaries []string) error {
	for _, binary := range binaries {
		p, err := readHelp(binary)
		if err != nil {
			return err
		}
		for _, place := range places {
			path := filepath.Join(dir, fmt.Sprintf(place.path, p.Name))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			var text strings.Builder
			if err := templates.ExecuteTemplate(&text, place.template, p); err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
