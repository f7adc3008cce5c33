package hostdir

import (
	"errors"
	"strings"
	"syscall"
	"testing"
)

func TestNamesOfDirectories(t *testing.T) {
	for _, name := range []string{"a", "default@3", strings.Repeat("x", maxName)} {
		if err := checkName(name); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"", ".", "..", ".a", "a/b", "/", "a\x00", strings.Repeat("x", maxName+1)} {
		if err := checkName(name); !errors.Is(err, syscall.EINVAL) {
			t.Errorf("name %q: %v, want EINVAL", name, err)
		}
	}
}

// The kernel reports neighbouring locks of one process as one lock.
func TestNoTwoClaimsOfAProcessAreNeighbours(t *testing.T) {
	for _, process := range []int{1, 2, maxProcess} {
		for _, port := range []int{1, 2, MaxPort - 1, MaxPort} {
			claims := []int64{int64(process), portByte(port), holderByte(port, process), portByte(port + 1)}
			for i := range claims[:3] {
				if claims[i+1] < claims[i]+2 {
					t.Errorf("process %d, port %d: bytes %v", process, port, claims)
				}
			}
		}
	}
}
