package clib

import (
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Library is a shared library for C. Its source is the directory cmd/NAME of this module, which has the headers in
// include, the visible names in NAME.map, and NAME as build tag.
type Library struct {
	Name        string
	Version     string // of its interface
	Description string // one line
	Libs        string // what programs are linked with
	Tags        string // more build tags, with a comma between; or empty
}

// Main is the main function of a command whose argument is the directory to install in. It prints the path of what
// install returns.
func (l Library) Main(install func(dir string) (string, error)) {
	log.SetFlags(0)
	log.SetPrefix(l.Name + ": ")
	if len(os.Args) != 2 || strings.HasPrefix(os.Args[1], "-") {
		log.Fatalf("usage: cmd/%s/install DIR", l.Name)
	}
	dir, err := filepath.Abs(os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	path, err := install(dir)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("installed: %s\n", path)
}

const module = "github.com/ntbnet/ntbnet"

// Source returns the directory of the library's source.
func (l Library) Source() (string, error) {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return "", fmt.Errorf("go list %s: %w: run this in a checkout of the module", module, err)
	}
	return filepath.Join(strings.TrimSpace(string(out)), "cmd", l.Name), nil
}

// Install builds the library and installs it below dir, with headers and what pkg-config reads.
func (l Library) Install(dir string) error {
	source, err := l.Source()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "lib/pkgconfig"), 0o755); err != nil {
		return err
	}
	if err := l.build(source, filepath.Join(dir, "lib")); err != nil {
		return err
	}
	if err := copyTree(filepath.Join(dir, "include"), os.DirFS(filepath.Join(source, "include"))); err != nil {
		return err
	}
	r := strings.NewReplacer("@NAME@", l.Name, "@VERSION@", l.Version, "@DESCRIPTION@", l.Description, "@LIBS@", l.Libs)
	return os.WriteFile(filepath.Join(dir, "lib/pkgconfig", l.Name+".pc"), []byte(r.Replace(packageText)), 0o644)
}

const packageText = `prefix=${pcfiledir}/../..
libdir=${prefix}/lib
includedir=${prefix}/include

Name: @NAME@
Description: @DESCRIPTION@
Version: @VERSION@
Cflags: -I${includedir}
Libs: -L${libdir} -Wl,-rpath,${libdir} @LIBS@
`

// build makes NAME.so in dir. Only names of the interface are visible in it, and it needs no
// resolver of the C library.
func (l Library) build(source, dir string) error {
	so := filepath.Join(dir, l.Name+".so")
	ldflags := fmt.Sprintf("-s -w -extldflags '-Wl,-soname,%s.so -Wl,--version-script=%s'", l.Name, filepath.Join(source, l.Name+".map"))
	cmd := exec.Command("go", "build", "-trimpath", "-buildmode=c-shared", "-tags="+l.Name+",netgo,osusergo,"+l.Tags, "-ldflags="+ldflags, "-o", so, ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build of the library: %w\n%s", err, out)
	}
	return os.Remove(filepath.Join(dir, l.Name+".h")) // declares what is not for programs
}

// copyTree copies all files of a tree.
func copyTree(dir string, tree fs.FS) error {
	return fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		switch to := filepath.Join(dir, path); {
		case err != nil:
			return err
		case d.IsDir():
			return os.MkdirAll(to, 0o755)
		default:
			text, err := fs.ReadFile(tree, path)
			if err != nil {
				return err
			}
			return os.WriteFile(to, text, 0o644)
		}
	})
}
