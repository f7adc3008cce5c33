package main

import (
	"cmp"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/ntbnet/ntbnet/internal/clib"
)

var library = clib.Library{
	Name: "libsdp", Version: "0.1", Libs: "-lsdp",
	Description: "stream sockets over PCIe non-transparent bridges and shared memory",
}

func main() { library.Main(install) }

// install builds the library and installs it below dir, with its manual page. It returns where the library is.
func install(dir string) (string, error) {
	pages := filepath.Join(dir, "share/man/man3")
	if err := os.MkdirAll(pages, 0o755); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(pages, "sdp.3"), []byte(pageText), 0o644); err != nil {
		return "", err
	}
	if err := library.Install(dir); err != nil {
		return "", err
	}
	return filepath.Join(dir, "lib", "libsdp.so"), installRun(dir)
}

// installRun builds sdp-run, and the library that it loads into programs, and installs them below dir.
func installRun(dir string) error {
	source, err := library.Source()
	if err != nil {
		return err
	}
	source = filepath.Join(filepath.Dir(source), "sdp-run")
	files, err := filepath.Glob(filepath.Join(source, "preload/*.c"))
	if err != nil {
		return err
	}
	so := filepath.Join(dir, "lib/libsdp-run.so")
	args := []string{"-std=gnu11", "-O2", "-Wall", "-Wextra", "-U_FORTIFY_SOURCE", "-fPIC", "-fvisibility=hidden", "-shared", "-Wl,-soname,libsdp-run.so", "-s"}
	for _, cmd := range []*exec.Cmd{
		exec.Command(cmp.Or(os.Getenv("CC"), "cc"), append(append(args, "-o", so), files...)...),
		exec.Command("go", "build", "-trimpath", "-ldflags=-s -w", "-o", filepath.Join(dir, "bin/sdp-run"), "."),
	} {
		cmd.Dir = source
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", cmd.Args[0], err, out)
		}
	}
	return nil
}

//go:embed sdp.3
var pageText string
