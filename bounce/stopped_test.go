package bounce

import (
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/recorder"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/ntbnet/ntbnet/ring"
	"github.com/stretchr/testify/require"
)

// However the last leases and Close coincide, FIN is stored before STOPPED, and
// nothing after it. The recorder checks that.
func TestNothingIsStoredAfterStopped(t *testing.T) {
	a, b := recorder.New(t).Pair(ntbmem.Pair(8 << 20))
	pa, pb := linkPools(t, a, b, Options{})
	stopOften(t, pa, pb, 20000)
}

// The same holds where stores are frames. The order is that of the frames.
func TestNothingIsStoredAfterStoppedOverHops(t *testing.T) {
	if recorder.For(t) == nil {
		t.Skip("nothing is recorded with the race detector")
	}
	h := newHosts(t, ring.Options{Hosts: 3, Topology: ring.Line}, Options{})
	pa, pb := h.pools(0, 2)
	before := h.rec.Stores()
	stopOften(t, pa, pb, 2000)
	require.Greater(t, h.rec.Stores(), before+2000)
}

func stopOften(t *testing.T, pa, pb *Pool, rounds int) {
	if testing.Short() {
		rounds /= 5
	}
	for i := 0; i < rounds && !t.Failed(); i++ {
		stopTogether(t, pa, pb, i)
		if i%256 == 255 { // the links' goroutines may be late
			require.Eventually(t, func() bool {
				return pa.Used().Pairs == 0 && pb.Used().Pairs == 0
			}, time.Minute, time.Millisecond)
		}
	}
}

// stopTogether ends both leases of a connection and closes it, each in a goroutine.
func stopTogether(t *testing.T, pa, pb *Pool, i int) {
	a, b := connect(t, pa, pb)
	b.Write([]byte("here"))
	if _, err := a.Peek(); err != nil {
		t.Error(err)
	}
	if _, err := a.Reserve(100); err != nil {
		t.Error(err)
	}
	ends := []func(){
		func() { a.Discard(i & 1) },
		func() { a.Commit(i & 2) },
		func() { a.CloseWrite() },
		func() { a.Close() },
	}
	within(t, func() {
		if i&4 != 0 {
			ends[3]()
			ends = ends[:2]
		}
		var wg sync.WaitGroup
		start := make(chan struct{})
		for _, f := range ends {
			wg.Go(func() { <-start; f() })
		}
		close(start)
		wg.Wait()
		a.Close()
		b.Close()
	})
}
