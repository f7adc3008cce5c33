package main

import (
	"debug/buildinfo"
	_ "embed"
	"fmt"
	"io/fs"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/ntbnet/ntbnet/internal/flags"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("libsma: ")
	if len(os.Args) != 2 || strings.HasPrefix(os.Args[1], "-") {
		log.Fatal("usage: cmd/libsma/install DIR")
	}
	dir, err := filepath.Abs(os.Args[1])
	if err == nil {
		err = install(dir)
	}
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("installed: %s\n", filepath.Join(dir, "bin", "oshcc"))
}

const module = "github.com/ntbnet/ntbnet"

// install builds the library and installs it below dir.
func install(dir string) error {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		return fmt.Errorf("go list %s: %w: run this in a checkout of the module", module, err)
	}
	source := filepath.Join(strings.TrimSpace(string(out)), "cmd", "libsma")
	for _, d := range []string{"bin", "include/mpp", "lib/pkgconfig", "share/man/man1"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return err
		}
	}
	if err := build(source, filepath.Join(dir, "lib")); err != nil {
		return err
	}
	if err := copyTree(filepath.Join(dir, "include"), os.DirFS(filepath.Join(source, "include"))); err != nil {
		return err
	}
	info, err := buildinfo.ReadFile(filepath.Join(dir, "lib", "libsma.so"))
	if err != nil {
		return err
	}
	for _, c := range []struct{ name, compiler, override, language, suffix string }{
		{"oshcc", "gcc", "SHMEM_CC", "C", "c"}, {"oshc++", "g++", "SHMEM_CXX", "C++", "cc"},
	} {
		r := strings.NewReplacer("@NAME@", c.name, "@COMPILER@", c.compiler, "@VERSION@", flags.VersionOf(c.name, info),
			"@OVERRIDE@", c.override, "@LANGUAGE@", c.language, "@SUFFIX@", c.suffix, "@SHMEMRUN@", "shmemrun")
		if err := os.WriteFile(filepath.Join(dir, "bin", c.name), []byte(r.Replace(compilerText)), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "share/man/man1", c.name+".1"), []byte(r.Replace(pageText)), 0o644); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "lib/valgrind.supp"), []byte(suppressions()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "lib/pkgconfig/libsma.pc"), []byte(packageText), 0o644)
}

//go:embed oshcc.sh
var compilerText string

//go:embed oshcc.1
var pageText string

// suppressions returns what valgrind is not to report of the library: Go switches stacks, and has memory that is not
// malloc's. What a program passes to the library is reported where that copies it, in valgrind's own memmove.
func suppressions() (text string) {
	for _, kind := range strings.Fields("Cond Value1 Value2 Value4 Value8 Value16 Value32 Addr1 Addr2 Addr4 Addr8 Addr16 Addr32 Jump") {
		text += fmt.Sprintf("{\n   libsma-%s\n   Memcheck:%[1]s\n   obj:*/libsma.so\n}\n", kind)
	}
	return text + "{\n   libsma-Param\n   Memcheck:Param\n   *\n   ...\n   obj:*/libsma.so\n}\n" +
		"{\n   libsma-Leak\n   Memcheck:Leak\n   ...\n   obj:*/libsma.so\n}\n"
}

const packageText = `prefix=${pcfiledir}/../..
libdir=${prefix}/lib
includedir=${prefix}/include

Name: libsma
Description: OpenSHMEM 1.5 over PCIe non-transparent bridges and shared memory
Version: 1.5
Cflags: -I${includedir}
Libs: -L${libdir} -Wl,-rpath,${libdir} -lsma
`

// build makes libsma.so in dir. Only names of the interface are visible in it, and it needs no
// resolver of the C library.
func build(source, dir string) error {
	so := filepath.Join(dir, "libsma.so")
	ldflags := fmt.Sprintf("-s -w -extldflags '-Wl,-soname,libsma.so -Wl,--version-script=%s'", filepath.Join(source, "libsma.map"))
	cmd := exec.Command("go", "build", "-trimpath", "-buildmode=c-shared", "-tags=libsma,netgo,osusergo", "-ldflags="+ldflags, "-o", so, ".")
	cmd.Dir = source
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build of the library: %w\n%s", err, out)
	}
	return os.Remove(filepath.Join(dir, "libsma.h")) // declares what is not for programs
}

// copyTree copies all files of a tree.
func copyTree(dir string, tree fs.FS) error {
	return fs.WalkDir(tree, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(tree, path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(dir, path), text, 0o644)
	})
}
