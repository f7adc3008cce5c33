package bounce

import (
	"io"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// hooked is a window that calls a function before each store of a word.
type hooked struct {
	ntb.Window
	before func()
}

func (h hooked) Store(off int, p []byte) { h.Window.Write(off, p) }

func (h hooked) Publish(off int, v uint64, width int) {
	h.before()
	if width == 4 {
		h.Window.Publish32(off, uint32(v))
	} else {
		h.Window.Publish64(off, v)
	}
}

// While the looks at grown queues find the last one idle, another one grows.
func TestAQueueThatGrowsDuringALookIsLookedAt(t *testing.T) {
	pa, pb := plainPools(t, Options{})
	pa.shrinkEvery = time.Hour // the test looks
	a, b := connect(t, pa, pb)
	within(t, func() {
		const n = 1 << 20
		written := make(chan error)
		go func() { _, err := b.Write(make([]byte, n)); written <- err }()
		_, err := io.ReadFull(a, make([]byte, n))
		require.NoError(t, err)
		require.NoError(t, <-written)
	})
	a.gmu.Lock()
	require.Greater(t, a.rxSize, minQueue)
	a.far = ntb.SinkWindow(hooked{a.far, func() {
		grown := make(chan struct{})
		go func() {
			defer close(grown)
			pa.mu.Lock()
			defer pa.mu.Unlock()
			pa.growing() // as that of another connection does
		}()
		<-grown
	}}, a.far.Len())
	a.gmu.Unlock()
	// The peer is to take a grant that is under way first.
	require.Eventually(t, func() bool {
		pa.shrink()
		a.gmu.Lock()
		defer a.gmu.Unlock()
		return a.rxSize == minQueue
	}, 60*time.Second, time.Millisecond)
	pa.mu.Lock()
	defer pa.mu.Unlock()
	require.True(t, pa.shrinking, "nobody will look at it")
}
