package main

import (
	_ "embed"
	"os"
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
	return filepath.Join(dir, "lib", "libsdp.so"), library.Install(dir)
}

//go:embed sdp.3
var pageText string
