//go:build linux && !race

package proxy

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Under the race detector, a sync.Pool drops some of its objects.
func TestReaderAllocatesNothing(t *testing.T) {
	e := newEnv(t)
	ln, at := e.serverOn(networkTCP)
	client := e.dial(at)
	r := newReader(accept(t, ln))
	defer r.release()
	piece := make([]byte, 100)
	allocs := testing.AllocsPerRun(1000, func() {
		if _, err := client.Write(piece); err != nil {
			t.Fatal(err)
		}
		if _, err := r.next(); err != nil {
			t.Fatal(err)
		}
	})
	require.Zero(t, allocs)
}
