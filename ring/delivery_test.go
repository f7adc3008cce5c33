package ring

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/require"
)

// newSilent returns a tunnel of host 1 of a ring of two to a process of host 2 that does not
// exist. Frames go there, and only the test sends any back.
func newSilent(t *testing.T) *tunnel {
	t.Helper()
	o := small(2)
	f := newPlainFabric(t, o)
	f.agrees(t, 2, "at the beginning")
	r := f.nodes[0].router
	a := newAnswerer(r, linkKey{}, &frame.Header{
		Src: link.MakeID(2, 9), Epoch: link.NewEpoch(), Arg: uint32(o.Window >> 10), Ask: uint32(o.Retention >> 10),
	})
	r.mu.Lock()
	named := *r.linkStates[2]
	named.members = []link.ID{a.remote}
	r.linkStates[2] = &named
	r.mu.Unlock()
	r.tunnels.add(a)
	a.reroute()
	return a
}

// acknowledge acknowledges everything that was sent.
func (t *tunnel) acknowledge() {
	t.acknowledgeSome(math.MaxInt)
}

// A peer that acknowledges everything holds nobody up, however much others store.
func TestArrivedEndsWithAnAcknowledgement(t *testing.T) {
	leak.Check(t)
	a := newSilent(t)
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
	ends(t, "Arrived", func() { a.Arrived(5 * time.Second) })
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Empty(t, a.deliveries)
}

// acknowledgeSome acknowledges n more of the frames that were sent, if there are as many.
func (t *tunnel) acknowledgeSome(n int) {
	f := t.frameFrom(nil)
	f.Kind = frame.Ack
	t.mu.Lock()
	next := uint32(t.arq.Stats().Sent) + 1 // to be sent
	waiting := t.arq.Kept() - t.arq.Unsent()
	f.Ack = next - uint32(waiting-min(n, waiting))
	t.mu.Unlock()
	t.router.deliver(t.nextHop.link.in[0], f, nil)
}

// One that acknowledges a little now and then keeps nobody for as long as it likes.
func TestArrivedEndsWithAPeerThatAcknowledgesLittle(t *testing.T) {
	leak.Check(t)
	a := newSilent(t)
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
	ends(t, "Arrived", func() { a.Arrived(200 * time.Millisecond) })
}

// A wait that ended early is forgotten.
func TestArrivedLeavesNothingBehind(t *testing.T) {
	leak.Check(t)
	a, _, _ := stuckTunnels(t, func(*Options) {})
	a.Publish(0, 1, 8)
	for range 10 {
		a.Arrived(time.Millisecond)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	require.Empty(t, a.deliveries)
}
