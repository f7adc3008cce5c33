package main

import (
	"debug/buildinfo"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ntbnet/ntbnet/internal/clib"
	"github.com/ntbnet/ntbnet/internal/flags"
)

var library = clib.Library{
	Name: "libsma", Version: "1.6", Libs: "-lsma",
	Description: "OpenSHMEM 1.6 over PCIe non-transparent bridges and shared memory",
}

func main() { library.Main(install) }

// install builds the library and installs it below dir, with compilers. It returns where the first of these is.
func install(dir string) (string, error) {
	if err := library.Install(dir); err != nil {
		return "", err
	}
	info, err := buildinfo.ReadFile(filepath.Join(dir, "lib", "libsma.so"))
	if err != nil {
		return "", err
	}
	files := map[string]string{"lib/valgrind.supp": suppressions()}
	for _, c := range []struct{ name, compiler, override, language, suffix string }{
		{"oshcc", "gcc", "SHMEM_CC", "C", "c"}, {"oshc++", "g++", "SHMEM_CXX", "C++", "cc"},
	} {
		r := strings.NewReplacer("@NAME@", c.name, "@COMPILER@", c.compiler, "@VERSION@", flags.VersionOf(c.name, info),
			"@OVERRIDE@", c.override, "@LANGUAGE@", c.language, "@SUFFIX@", c.suffix, "@SHMEMRUN@", "shmemrun")
		files["bin/"+c.name], files["share/man/man1/"+c.name+".1"] = r.Replace(compilerText), r.Replace(pageText)
	}
	for name, text := range files {
		path, mode := filepath.Join(dir, name), os.FileMode(0o644)
		if strings.HasPrefix(name, "bin/") {
			mode = 0o755
		}
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return "", err
		}
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "bin/oshcc"), nil
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
