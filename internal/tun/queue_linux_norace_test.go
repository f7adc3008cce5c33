//go:build linux && !race

package tun

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// In a queue that is in use, packets take no memory but its own. With the race detector, a sync.Pool forgets some.
func TestAQueueAllocatesNothing(t *testing.T) {
	w := newWire(1<<20, 1e9)
	b := frameOf(virtio(0, 0, 0, 0, 0), ipPacket("10.77.0.1", "10.77.0.2", protocolTCP, 1, 80, 1000))
	turn := func() {
		for range 100 {
			e := newEntry(len(b))
			e.b = e.b[:copy(e.b, b)]
			w.q.push(e, 0)
		}
		for e := w.q.pop(0); e != nil; e = w.q.pop(0) {
			e.release()
		}
	}
	turn()
	require.Zero(t, testing.AllocsPerRun(10, turn))
}
