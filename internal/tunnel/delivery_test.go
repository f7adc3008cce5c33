package tunnel

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
)

// acknowledge acknowledges everything that was sent.
func (t *Tunnel) acknowledge() {
	t.acknowledgeSome(math.MaxInt)
}

// A peer that acknowledges everything holds nobody up, however much others store.
func TestArrivedEndsWithAnAcknowledgement(t *testing.T) {
	leak.Check(t)
	a := newSilent(func(c *Config) { c.FrameBytes, c.Retention = 512, 16<<10 }, func() {})
	defer a.Close()
	defer a.Drop()
	var wg sync.WaitGroup
	stop := make(chan struct{})
	wg.Go(func() {
		for v := uint64(1); ; v++ {
			select {
			case <-stop:
				return
			default:
			}
			a.Publish(0, v, 8) // traffic of another connection
			a.acknowledge()
			time.Sleep(time.Millisecond)
		}
	})
	defer wg.Wait()
	defer close(stop)
	ends(t, func() { a.Arrived(5 * time.Second) })
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Empty(t, a.deliveries)
}

// acknowledgeSome acknowledges n more of the frames that were sent, if there are as many.
func (t *Tunnel) acknowledgeSome(n int) {
	f := t.frameFrom(nil)
	f.Kind = frame.Ack
	t.mu.Lock()
	next := uint32(t.arq.Stats().Sent) + 1 // to be sent
	waiting := t.arq.Kept() - t.arq.Unsent()
	f.Ack = next - uint32(waiting-min(n, waiting))
	t.mu.Unlock()
	t.Take(f, nil)
}

// One that acknowledges a little now and then keeps nobody for as long as it likes.
func TestArrivedEndsWithAPeerThatAcknowledgesLittle(t *testing.T) {
	leak.Check(t)
	a := newSilent(func(c *Config) { c.FrameBytes, c.Retention = 512, 16<<10 }, func() {})
	defer a.Close()
	defer a.Drop()
	var wg sync.WaitGroup
	defer wg.Wait()
	stop := make(chan struct{})
	defer close(stop)
	for v := range uint64(3000) {
		a.Store(64, make([]byte, 400)) // each takes most of a frame
		a.Publish(0, v, 8)
	}
	wg.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
				a.acknowledgeSome(1)
			}
		}
	})
	ends(t, func() { a.Arrived(200 * time.Millisecond) })
}

// A wait that ended early is forgotten.
func TestArrivedLeavesNothingBehind(t *testing.T) {
	leak.Check(t)
	a, _, _ := stuckTunnels(t, func(*Config) {})
	a.Publish(0, 1, 8)
	for range 10 {
		a.Arrived(time.Millisecond)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Empty(t, a.deliveries)
}

// ends requires that f returns.
func ends(t *testing.T, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { f(); close(done) }()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		t.Fatal("Arrived has not ended within 30 s")
	}
}
