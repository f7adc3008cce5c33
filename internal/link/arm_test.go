package link

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// crowd is an object to which the peer announces more while it is notified, left times.
type crowd struct {
	announce func()
	left     atomic.Int32
}

func (c *crowd) Notified(Event) {
	if c.left.Add(-1) >= 0 {
		done := make(chan struct{})
		go func() { defer close(done); c.announce() }() // as another process, it holds no lock
		<-done
	}
}

// What is announced during the looks after a doorbell is found by them. It does not ring again and again, nor does
// each look cost an arm.
func TestTheLooksAfterADoorbellArmOnce(t *testing.T) {
	leak.Check(t)
	a, b := ntbmem.Pair(1 << 20)
	pa, pb := join(t, a, b, newEcho(), newEcho())
	arms := func() uint32 {
		pa.looks.mu.Lock()
		defer pa.looks.mu.Unlock()
		return pa.bridge.arm
	}
	c := &crowd{}
	slot, err := pa.Attach(c)
	require.NoError(t, err)
	c.announce = func() { pb.Notify(slot, Data) }
	armed, rung := arms(), pb.Stats().Doorbells
	c.left.Store(drainRounds - 2)
	c.announce()
	require.Eventually(t, func() bool { return c.left.Load() < 0 && !pa.Pending() }, 60*time.Second, time.Millisecond)
	const few = 4 // the first, one during the looks, and what is left of the bring-up
	require.LessOrEqual(t, pb.Stats().Doorbells-rung, uint64(few), "doorbells")
	require.LessOrEqual(t, arms()-armed, uint32(few), "arms")
}
