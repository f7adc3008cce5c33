package ring

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// oneWriter is a neighbour's word that has one writer at a time.
type oneWriter struct {
	writers, overlaps atomic.Int32
	last              atomic.Uint64
	back              atomic.Int32 // stores of a number that is not the one after the last
}

func (w *oneWriter) Store(int, []byte) {}

func (w *oneWriter) Publish(_ int, v uint64, _ int) {
	if w.writers.Add(1) > 1 {
		w.overlaps.Add(1)
	}
	runtime.Gosched()
	if w.last.Swap(v) != v-1 {
		w.back.Add(1)
	}
	w.writers.Add(-1)
}

// The guard of a link that loses doorbells announces that it sleeps while the worker may.
func TestTheDataArmHasOneWriterAtATime(t *testing.T) {
	m := newMiddle(t, small(3), 0)
	defer m.close()
	var w oneWriter
	m.in.words = ntb.SinkWindow(ntb.Basic(&w), laneWords)
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for range 10_000 {
				m.in.sleep()
			}
		})
	}
	wg.Wait()
	require.Zero(t, w.overlaps.Load())
	require.Zero(t, w.back.Load())
	require.Equal(t, uint64(20_000), w.last.Load())
}
