package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"go/version"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const (
	own  = "github.com/ntbnet/ntbnet"
	here = "internal/testing/others" // of this module
)

// source is a suite's source, ready to be run.
type source struct {
	tmp     string            // a temporary directory
	dir     string            // below it; go runs here
	origin  string            // the directory that dir is a copy of; "" for Go's library
	mod     []string          // arguments of the go command that have it use the go.mod in tmp, over both transports
	goroot  string            // the directory of Go
	module  string            // the directory of this module
	overlay map[string]string // replacements, by the files that they replace
}

// prepare copies a suite below tmp, and writes beside it the files with which it is
// built over SDP.
func prepare(ctx context.Context, from suite, tmp string) (*source, error) {
	s := &source{tmp: tmp, dir: filepath.Join(tmp, "suite"), overlay: map[string]string{}}
	var err error
	if s.goroot, err = output(ctx, "", "go", "env", "GOROOT"); err != nil {
		return nil, err
	}
	if s.module, err = output(ctx, "", "go", "list", "-m", "-f", "{{.Dir}}", own); err != nil {
		return nil, err
	}
	if err := s.copy(ctx, from); err != nil {
		return nil, err
	}
	if err := s.modfile(ctx); err != nil {
		return nil, err
	}
	if err := s.patchNet(); err != nil {
		return nil, err
	}
	return s, nil
}

// copy makes s.dir.
func (s *source) copy(ctx context.Context, of suite) error {
	target := of.target
	if target == std {
		// A module that requires nothing is enough, since tests of the standard
		// library run from any module.
		if err := os.Mkdir(s.dir, 0o700); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(s.dir, "go.mod"), []byte("module others\n\ngo 1.26.0\n"), 0o600)
	}
	from, mod := target, ""
	if of.own {
		from = filepath.Join(s.module, here, target)
	}
	if strings.Contains(target, "@") {
		out, err := output(ctx, "", "go", "mod", "download", "-json", target)
		if err != nil {
			return err
		}
		var m struct{ Dir, GoMod string }
		if err := json.Unmarshal([]byte(out), &m); err != nil {
			return err
		}
		from, mod = m.Dir, m.GoMod
	}
	var text []byte // of a go.mod, for a module that has none
	_, err := os.Stat(filepath.Join(from, "go.mod"))
	if err != nil && mod != "" {
		text, err = os.ReadFile(mod)
	}
	if err != nil {
		return fmt.Errorf("%s is no module: %w", target, err)
	}
	if s.origin, err = filepath.Abs(from); err != nil {
		return err
	}
	if err := os.CopyFS(s.dir, os.DirFS(from)); err != nil {
		return err
	}
	// The module cache is read-only, and a suite may write into its own directory.
	err = filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.Type()&os.ModeSymlink != 0 {
			return err
		}
		i, err := d.Info()
		if err != nil {
			return err
		}
		return os.Chmod(path, i.Mode().Perm()|0o600)
	})
	if err == nil && text != nil {
		err = os.WriteFile(filepath.Join(s.dir, "go.mod"), text, 0o600)
	}
	return err
}

// modfile writes a go.mod that requires this module too, and a go.sum for it. As the go command wants of
// one that requires this module, its go directive is not older than this module's. Replacements outside of the
// copy are those of the origin.
func (s *source) modfile(ctx context.Context) error {
	mod := filepath.Join(s.tmp, "go.mod")
	text, err := os.ReadFile(filepath.Join(s.dir, "go.mod"))
	if err != nil {
		return err
	}
	if err := os.WriteFile(mod, text, 0o600); err != nil {
		return err
	}
	edits := []string{"mod", "edit", "-require=" + own + "@v0.0.0", "-replace=" + own + "=" + s.module}
	described, err := output(ctx, "", "go", "mod", "edit", "-json", mod)
	if err != nil {
		return err
	}
	var m struct {
		Go      string
		Replace []struct {
			Old, New struct{ Path, Version string }
		}
	}
	if err := json.Unmarshal([]byte(described), &m); err != nil {
		return err
	}
	least, err := output(ctx, "", "go", "list", "-m", "-f={{.GoVersion}}", own)
	if err != nil {
		return err
	}
	if version.Compare("go"+m.Go, "go"+least) < 0 {
		edits = append(edits, "-go="+least)
	}
	for _, r := range m.Replace {
		if r.New.Version != "" || filepath.IsAbs(r.New.Path) || filepath.IsLocal(r.New.Path) {
			continue
		}
		old := r.Old.Path
		if r.Old.Version != "" {
			old += "@" + r.Old.Version
		}
		edits = append(edits, "-replace="+old+"="+filepath.Join(s.origin, r.New.Path))
	}
	if _, err := output(ctx, "", "go", append(edits, mod)...); err != nil {
		return err
	}
	var sums []byte
	for _, dir := range []string{s.dir, s.module} {
		text, err := os.ReadFile(filepath.Join(dir, "go.sum"))
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		sums = append(sums, text...)
	}
	if err := os.WriteFile(filepath.Join(s.tmp, "go.sum"), sums, 0o600); err != nil {
		return err
	}
	s.mod = []string{"-mod=mod", "-modfile=" + mod}
	return nil
}

// goPackage is what go list prints about a package.
type goPackage struct {
	Dir, Name                 string
	TestGoFiles, XTestGoFiles []string
}

// list finds the packages that match patterns.
func (s *source) list(ctx context.Context, patterns []string) ([]goPackage, error) {
	args := slices.Concat([]string{"list", "-json=Dir,Name,TestGoFiles,XTestGoFiles"}, s.mod, patterns)
	out, err := output(ctx, s.dir, "go", args...)
	if err != nil {
		return nil, err
	}
	var all []goPackage
	for dec := json.NewDecoder(strings.NewReader(out)); ; {
		var p goPackage
		if err := dec.Decode(&p); err == io.EOF {
			break
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no packages in %v", patterns)
	}
	return all, nil
}

// output runs a command and returns what it prints, without the last newline. An error
// contains its standard error.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := newCommand(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = environ()
	var out, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &stderr
	err := cmd.Start()
	if err == nil {
		err = wait(ctx, cmd)
	}
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.Bytes())
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}

// environ returns the environment for all go commands. What the caller has set for the
// build of this program is not meant for the suites.
func environ(more ...string) []string {
	env := append(os.Environ(), "GOFLAGS=-buildvcs=false", "GOWORK=off", "CGO_ENABLED=0")
	return append(env, more...)
}
