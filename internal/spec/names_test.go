package spec

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

func TestNamesOfFabrics(t *testing.T) {
	for _, name := range []string{"a", "default", "A-b_c.9", "a..", strings.Repeat("x", 32)} {
		if err := CheckName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", ".", "..", ".a", "a/b", "/", "a b", "ä", "a\x00", strings.Repeat("x", 33)} {
		if err := CheckName(name); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("name %q: %v, want EINVAL", name, err)
		}
	}
}
