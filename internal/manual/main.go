package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// places are the files of a command, below the directory.
var places = []struct {
	path  string // with the command's name for %s
	write func(*page) string
}{
	{"man/man1/%s.1", manPage},
	{"bash-completion/completions/%s", bash},
	{"zsh/site-functions/_%s", zsh},
	{"fish/vendor_completions.d/%s.fish", fish},
}

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
			path := filepath.Join(dir, fmt.Sprintf(place.path, p.name))
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, []byte(place.write(p)), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}
