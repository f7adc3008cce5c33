package bounce

import (
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/ntbfault"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// traffic is a step that is repeated. In each step, one endpoint begins to wait
// while what it waits for is under way.
type traffic struct {
	name  string
	waits int // the endpoint that waits: 0 for a, 1 for b
	step  func(a, b *Pair) error
}

// Endpoint a waits for data while endpoint b writes it.
var forData = traffic{"data", 0, func(a, b *Pair) error {
	return atOnce(
		func() error { _, err := b.Write([]byte("message")); return err },
		func() error { _, err := io.ReadFull(a, make([]byte, 7)); return err },
	)
}}

// Endpoint b waits for room while endpoint a reads what fills the queue of 4 KiB. The first bytes have room, though a may owe
// credit for a quarter of the queue.
var forRoom = traffic{"room", 1, func(a, b *Pair) error {
	if _, err := b.Write(make([]byte, 2800)); err != nil {
		return err
	}
	b.control.peer.Order() // by now a has it
	return atOnce(
		func() error { _, err := b.Write(make([]byte, 3000)); return err },
		func() error { _, err := io.ReadFull(a, make([]byte, 5800)); return err },
	)
}}

func atOnce(f, g func() error) error {
	other := make(chan error)
	go func() { other <- f() }()
	err := g()
	return errors.Join(err, <-other)
}

// lostSeeds are runs in which the re-check after arming finds what no doorbell
// announces. Without it they hang each time.
var lostSeeds = []struct {
	traffic traffic
	faults  ntbfault.Options
}{
	{forData, ntbfault.Options{Seed: 1, StoreDelayMin: time.Millisecond, StoreDelayMax: 2 * time.Millisecond}},
	{forData, ntbfault.Options{Seed: 2, StoreDelayMax: 200 * time.Microsecond}},
	{forRoom, ntbfault.Options{Seed: 3, StoreDelayMin: time.Millisecond, StoreDelayMax: 2 * time.Millisecond}},
	{forRoom, ntbfault.Options{Seed: 4, StoreDelayMax: 500 * time.Microsecond}},
}

const lostSteps = 100

// lostRun is one run of traffic over faults.
type lostRun struct {
	a, b     *Pair
	progress atomic.Uint64 // steps done
	done     chan error    // capacity 1
}

// waiter returns the one of which a traffic speaks.
func (r *lostRun) waiter(waits int) *waiter {
	if waits == 0 {
		return &r.a.r.waiter
	}
	return &r.b.w.waiter
}

// overlooking is a half whose waiter finds nothing when it looks again after arming.
type overlooking struct {
	half
	armed bool // since the last look; the half's lock guards it
}

func (o *overlooking) arm() {
	o.half.arm()
	o.armed = true
}

func (o *overlooking) Ready() bool {
	if o.armed {
		o.armed = false
		return false
	}
	return o.half.Ready()
}

func startLost(t *testing.T, tr traffic, f ntbfault.Options, skipLookAgain bool) *lostRun {
	da, db := ntbmem.Pair(1 << 20)
	fa, fb := ntbfault.Pair(da, db, f)
	require.False(t, fa.Caps().LossyDoorbells, "the slow guard is on")
	pa, pb := linkPools(t, fa, fb, Options{Buffer: 4096})
	r := &lostRun{done: make(chan error, 1)}
	r.a, r.b = connect(t, pa, pb)
	if skipLookAgain {
		w := r.waiter(tr.waits)
		w.half = &overlooking{half: w.half}
	}
	go func() { r.done <- r.steps(tr) }()
	return r
}

func (r *lostRun) steps(tr traffic) error {
	for range lostSteps {
		if err := tr.step(r.a, r.b); err != nil {
			return err
		}
		r.progress.Add(1)
	}
	return nil
}

// stalls waits until the run is done, or no step has ended for 2 s. It reports
// whether the latter came first.
func (r *lostRun) stalls() bool {
	seen, since := uint64(0), time.Now()
	for time.Since(since) < 2*time.Second {
		select {
		case err := <-r.done:
			r.done <- err
			return false
		case <-time.After(50 * time.Millisecond):
		}
		if n := r.progress.Load(); n != seen {
			seen, since = n, time.Now()
		}
	}
	return true
}

// goesOn reports whether another check by the waiter was all that was missing.
func (r *lostRun) goesOn(waits int) bool {
	before := r.progress.Load()
	r.waiter(waits).notify()
	for range 3000 {
		if r.progress.Load() > before {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

func TestListedSeedHangsUnlessAWaitLooksAgainAfterArming(t *testing.T) {
	leak.Check(t)
	for _, s := range lostSeeds {
		name := fmt.Sprintf("%s, seed %d", s.traffic.name, s.faults.Seed)
		t.Run(name, func(t *testing.T) {
			t.Parallel() // a run that hangs uses no CPU
			r := startLost(t, s.traffic, s.faults, false)
			select {
			case err := <-r.done:
				require.NoError(t, err)
			case <-time.After(time.Minute):
				t.Fatalf("hangs after %d steps although it looks again", r.progress.Load())
			}
			require.EqualValues(t, lostSteps, r.progress.Load())

			r = startLost(t, s.traffic, s.faults, true)
			defer func() {
				r.a.Abort()
				r.b.Abort()
				<-r.done
			}()
			require.True(t, r.stalls(), "does not hang without the look: the seeds prove nothing")
			t.Logf("hangs after %d steps", r.progress.Load())
			require.True(t, r.goesOn(s.traffic.waits), "hangs, but not for want of a look")
		})
	}
}
