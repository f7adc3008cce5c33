//go:build unix

package unixsock

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
)

// CheckPath and package net refuse the same paths.
func TestALongPathIsNamedAsSuch(t *testing.T) {
	t.Chdir(t.TempDir())
	for n, ok := range map[int]bool{1: true, maxPath: true, maxPath + 1: false, 300: false} {
		path := strings.Repeat("a", n)
		if n > 255 {
			path = filepath.Join(path[:100], path[:200])
		}
		if err := CheckPath(path); (err == nil) != ok {
			t.Errorf("%d bytes: %v", n, err)
		}
		ln, err := ListenAs(t.Context(), path, Rights{UID: -1, GID: -1})
		if (err == nil) != ok {
			t.Errorf("listen, %d bytes: %v", n, err)
		}
		if err == nil {
			ln.Close()
		} else if !strings.Contains(err.Error(), "a Unix socket takes at most 107") {
			t.Errorf("listen, %d bytes: %v", n, err)
		}
		plain, err := net.Listen("unix", path)
		if (err == nil) != ok {
			t.Errorf("net, %d bytes: %v", n, err)
		}
		if err == nil {
			plain.Close()
		}
	}
}
