//go:build linux

package integration

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// programs is the directory of the built commands.
var programs string

func TestMain(m *testing.M) {
	os.Exit(run(m))
}

func run(m *testing.M) int {
	var err error
	if err = noteSources(".."); err == nil {
		programs, err = build("..", "./cmd/sdp-proxy", "./cmd/sdp-perf", "./cmd/ntbnet", "./cmd/ntb-ivshmem-server", "./cmd/sdp-tun")
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "integration:", err)
		return 1
	}
	defer os.RemoveAll(programs)
	return m.Run()
}

// build builds the commands. Another user must be able to run them, because a test
// drops its rights.
func build(root string, packages ...string) (dir string, err error) {
	dir, err = os.MkdirTemp("", "integration")
	if err != nil {
		return "", err
	}
	if err := os.Chmod(dir, 0o755); err != nil {
		return "", err
	}
	cmd := exec.Command("go", append([]string{"build", "-o", dir + "/"}, packages...)...)
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		os.RemoveAll(dir)
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return dir, nil
}

// noteSources reads all sources of the module. The test cache records what a test
// itself reads, but not what a go build that it runs reads. Without this, the cache
// would return an old result after a change of a program.
func noteSources(root string) error {
	return filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() != ".." && strings.HasPrefix(d.Name(), ".") {
			return filepath.SkipDir
		}
		switch filepath.Ext(path) {
		case ".go", ".s", ".mod", ".sum":
			_, err = os.Stat(path)
		}
		return err
	})
}

// tool finds a program of the system.
func tool(t *testing.T, name string) string {
	t.Helper()
	for _, path := range []string{name, "/usr/sbin/" + name, "/usr/local/sbin/" + name} {
		if found, err := exec.LookPath(path); err == nil {
			return found
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatalf("%s is not installed, and CI=true", name)
	}
	t.Skipf("%s is not installed", name)
	return ""
}
