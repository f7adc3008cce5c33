package ntbfault_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/ntbfault"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
)

// pair returns a bridge that is closed at the end of the test.
func pair(t *testing.T, o ntbfault.Options) (a, b *ntbfault.Device) {
	t.Helper()
	x, y := ntbmem.Pair(16 << 10)
	return wrap(t, x, y, o)
}

func wrap(t *testing.T, x, y ntb.Device, o ntbfault.Options) (a, b *ntbfault.Device) {
	t.Helper()
	a, b = ntbfault.Pair(x, y, o)
	t.Cleanup(func() {
		for _, d := range []*ntbfault.Device{a, b} {
			if err := d.Close(); err != nil {
				t.Errorf("Close: %v", err)
			}
		}
	})
	return a, b
}

// recorder is a device that lists what arrives at it.
type recorder struct {
	ntb.Device
	mu   sync.Mutex
	list []string // guarded by mu
}

func (r *recorder) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, fmt.Sprintf(format, args...))
}

func (r *recorder) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

func (r *recorder) Outbound() ntb.Window             { return ntb.SinkWindow(ntb.Basic(r), 16<<10) }
func (r *recorder) Store(off int, p []byte)          { r.add("store %d %x", off, p) }
func (r *recorder) Publish(off int, v uint64, n int) { r.add("publish %d %d %d", off, v, n) }
func (r *recorder) SetPeerSpad(i int, v uint32)      { r.add("spad %d %d", i, v) }
func (r *recorder) RingDoorbell(bit int)             { r.add("ring %d", bit) }

func TestEverythingArrivesInTheOrderItWasSent(t *testing.T) {
	for seed := range uint64(5) {
		for _, o := range []ntbfault.Options{
			{StoreDelayMax: us}, {StoreDelayMax: 30 * us}, {StoreDelayMax: 500 * us},
			{StoreDelayMin: 100 * us, StoreDelayMax: 200 * us, QueueBytes: 1000},
		} {
			o.Seed = seed
			x, y := ntbmem.Pair(16 << 10)
			r := &recorder{Device: x}
			a, _ := wrap(t, r, y, o)
			w := a.Outbound()
			part := w.Slice(1024, 1024)
			var want []string
			for i := range 300 {
				switch i % 6 {
				case 0:
					p := []byte{byte(i), 1, 2}
					want = append(want, fmt.Sprintf("store %d %x", i, p))
					w.Write(i, p)
					p[0]++ // the caller may change it again
				case 1:
					want = append(want, fmt.Sprintf("publish %d %d 8", 8*i, i))
					w.Publish64(8*i, uint64(i))
				case 2:
					want = append(want, fmt.Sprintf("publish %d %d 4", 4*i, i))
					w.Publish32(4*i, uint32(i))
				case 3:
					want = append(want, fmt.Sprintf("spad 3 %d", i))
					a.SetPeerSpad(3, uint32(i))
				case 4:
					want = append(want, fmt.Sprintf("ring %d", i%8))
					a.RingDoorbell(i % 8)
				case 5:
					want = append(want, fmt.Sprintf("store %d ff", 1024+i))
					part.Write(i, []byte{0xff})
				}
			}
			a.Order()
			if got := r.all(); !slices.Equal(got, want) {
				t.Errorf("%+v:\n got %q\nwant %q", o, got, want)
			}
			if got := a.Stats().StoresDelayed; got != 250 {
				t.Errorf("StoresDelayed is %d, want 250", got)
			}
		}
	}
}

// In a bubble the clock moves only when all goroutines sleep. So times are exact,
// and the test shows that the device's goroutines sleep.
func TestStoreComesWhenItIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t, ntbfault.Options{StoreDelayMin: 10 * ms, StoreDelayMax: 10 * ms})
		w := a.Outbound()
		w.Publish64(0, 1)
		time.Sleep(4 * ms)
		w.Publish64(8, 2)
		for _, step := range []struct {
			sleep         time.Duration
			first, second uint64
		}{{6*ms - 1, 0, 0}, {1, 1, 0}, {4*ms - 1, 1, 0}, {1, 1, 2}} {
			time.Sleep(step.sleep)
			synctest.Wait()
			in := b.Inbound()
			if f, s := ntb.Load64(in, 0), ntb.Load64(in, 8); f != step.first || s != step.second {
				t.Fatalf("words are %d and %d, want %d and %d", f, s, step.first, step.second)
			}
		}
	})
}

func TestDelaysAreWithinTheirLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t, ntbfault.Options{StoreDelayMin: 2 * ms, StoreDelayMax: 5 * ms})
		w := a.Outbound()
		seen := map[time.Duration]bool{}
		for r := uint64(1); r <= 100; r++ {
			start := time.Now()
			w.Publish64(0, r)
			a.Order()
			if ntb.Load64(b.Inbound(), 0) != r {
				t.Fatal("store not visible after Order")
			}
			d := time.Since(start)
			if d < 2*ms || d > 5*ms {
				t.Fatalf("store %d came after %v", r, d)
			}
			seen[d.Truncate(ms/2)] = true
		}
		if len(seen) != 6 {
			t.Errorf("delays, in steps of 0.5 ms: %v; want all 6 between 2 and 5 ms", seen)
		}
	})
}

func TestDoorbellComesAfterItsStoresAndLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t, ntbfault.Options{StoreDelayMin: ms, StoreDelayMax: ms, DoorbellDelayMax: 20 * ms})
		var latest time.Duration
		for r := uint64(1); r <= 50; r++ {
			start := time.Now()
			w := a.Outbound()
			w.Publish64(0, r)
			a.RingDoorbell(2)
			if err := b.WaitDoorbell(2); err != nil {
				t.Fatal(err)
			}
			if got := ntb.Load64(b.Inbound(), 0); got != r {
				t.Fatalf("round %d: doorbell rang when the word was %d", r, got)
			}
			d := time.Since(start)
			if d < ms || d > 21*ms {
				t.Fatalf("doorbell came after %v", d)
			}
			latest = max(latest, d)
		}
		if latest < 10*ms {
			t.Errorf("the latest of 50 doorbells came after %v, with a delay of up to 20 ms", latest)
		}
		if got := a.Stats().DoorbellsDelayed; got != 50 {
			t.Errorf("DoorbellsDelayed is %d, want 50", got)
		}
	})
}

func TestWhatIsSentToAWindowThatIsNotSetUpVanishes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for seed := range uint64(5) {
			a, b := pair(t, ntbfault.Options{Seed: seed, InvalidMax: 20 * ms})
			w := a.Outbound()
			sent := uint64(0)
			for b.Spad(1) == ^uint32(0) {
				sent++
				w.Publish64(0, sent)
				a.SetPeerSpad(1, 7)
				a.RingDoorbell(0)
				a.Order()
				if got := ntb.Load64(b.Inbound(), 0); got != 0 {
					t.Fatalf("seed %d: the store of %d has arrived", seed, got)
				}
				time.Sleep(ms / 10)
			}
			if got := a.Stats(); got.StoresVanished != 2*sent || sent == 0 || sent > 201 || got.DoorbellsRung != 0 {
				t.Errorf("seed %d: %+v after %d stores", seed, got, sent)
			}
			if got := b.Spad(1); got != 0 {
				t.Errorf("seed %d: the scratchpad is %d, want 0", seed, got)
			}
			w.Publish64(0, 99)
			a.SetPeerSpad(1, 8)
			a.Order()
			if got, spad := ntb.Load64(b.Inbound(), 0), b.Spad(1); got != 99 || spad != 8 {
				t.Errorf("seed %d: the word is %d and the scratchpad %d, want 99 and 8", seed, got, spad)
			}
		}
	})
}

func TestRepeatedDoorbellRingsTwice(t *testing.T) {
	for _, o := range []ntbfault.Options{
		{RepeatDoorbell: 1},
		{RepeatDoorbell: 1, DoorbellDelayMax: 3 * ms},
		{RepeatDoorbell: 1, StoreDelayMax: ms},
	} {
		synctest.Test(t, func(t *testing.T) {
			x, y := ntbmem.Pair(4096)
			r := &recorder{Device: x}
			a, _ := wrap(t, r, y, o)
			a.RingDoorbell(5)
			time.Sleep(time.Second)
			if got := r.all(); !slices.Equal(got, []string{"ring 5", "ring 5"}) {
				t.Errorf("%+v: %q", o, got)
			}
			if got := a.Stats(); got.DoorbellsRepeated != 1 || got.DoorbellsRung != 1 {
				t.Errorf("%+v", got)
			}
		})
	}
}

// dropped returns for each of n doorbells whether it was lost.
func dropped(t *testing.T, seed uint64, n int, o ntbfault.Options) (fates []bool, s ntbfault.Stats) {
	t.Helper()
	o.Seed = seed
	a, _ := pair(t, o)
	for i := range n {
		before := a.Stats().DoorbellsDropped
		if w := a.Outbound(); i%3 == 0 {
			w.Publish64(0, 1)
		}
		a.RingDoorbell(i % 8)
		fates = append(fates, a.Stats().DoorbellsDropped > before)
	}
	return fates, a.Stats()
}

func TestSameSeedSameFaults(t *testing.T) {
	const n = 4000
	for _, o := range []ntbfault.Options{
		{DropDoorbell: 0.3, RepeatDoorbell: 0.2},
		{DropDoorbell: 0.3, RepeatDoorbell: 0.2, StoreDelayMax: 10 * us, DoorbellDelayMax: 10 * us},
	} {
		first, s := dropped(t, 1, n, o)
		again, s2 := dropped(t, 1, n, o)
		other, _ := dropped(t, 2, n, o)
		if !slices.Equal(first, again) || s != s2 {
			t.Errorf("the same seed gave other faults: %+v, %+v", s, s2)
		}
		if slices.Equal(first, other) {
			t.Error("another seed gave the same faults")
		}
		if s.DoorbellsRung != n {
			t.Errorf("DoorbellsRung is %d, want %d", s.DoorbellsRung, n)
		}
		for _, rate := range []struct {
			name      string
			got, want float64
		}{
			{"dropped", float64(s.DoorbellsDropped) / n, 0.3},
			{"repeated", float64(s.DoorbellsRepeated) / n, 0.7 * 0.2},
		} {
			if math.Abs(rate.got-rate.want) > 0.03 {
				t.Errorf("%.3f of doorbells %s, want %.3f", rate.got, rate.name, rate.want)
			}
		}
	}
}

func TestDroppedDoorbellsDoNotRing(t *testing.T) {
	x, y := ntbmem.Pair(4096)
	r := &recorder{Device: x}
	a, _ := wrap(t, r, y, ntbfault.Options{DropDoorbell: 0.5, StoreDelayMax: us})
	for range 200 {
		a.RingDoorbell(0)
	}
	a.Order()
	s := a.Stats()
	if got := uint64(len(r.all())); got != 200-s.DoorbellsDropped || s.DoorbellsDropped == 0 {
		t.Errorf("%d of 200 doorbells rang, %+v", got, s)
	}
}

func TestCapsTellTheFaults(t *testing.T) {
	inner, other := ntbmem.Pair(4096)
	base := inner.Caps()
	inner.Close()
	other.Close()
	lossy, late := base, base
	lossy.LossyDoorbells = true
	late.Coherent = false
	for _, tt := range []struct {
		o    ntbfault.Options
		want ntb.Caps
	}{
		{ntbfault.Options{}, base},
		{ntbfault.Options{RepeatDoorbell: 1, DoorbellDelayMax: ms}, base},
		{ntbfault.Options{DropDoorbell: 0.01}, lossy},
		{ntbfault.Options{StoreDelayMin: 1}, late},
	} {
		a, b := pair(t, tt.o)
		if a.Caps() != tt.want || b.Caps() != tt.want {
			t.Errorf("%+v: %+v, %+v, want %+v", tt.o, a.Caps(), b.Caps(), tt.want)
		}
	}
}

func TestOrderDrainsBothDirections(t *testing.T) {
	a, b := pair(t, ntbfault.Options{StoreDelayMin: 50 * ms})
	start := time.Now()
	ours, theirs := a.Outbound(), b.Outbound()
	ours.Write(64, []byte("payload"))
	ours.Publish64(0, 1)
	theirs.Write(64, []byte("answer"))
	theirs.Publish64(0, 2)
	early := ntb.Load64(a.Inbound(), 0) != 0 || ntb.Load64(b.Inbound(), 0) != 0
	if early && time.Since(start) < 50*ms {
		t.Error("visible before the delay is over")
	}
	a.Order()
	if got := ntb.Load64(b.Inbound(), 0); got != 1 {
		t.Errorf("after Order the peer sees %d, want 1", got)
	}
	if got := ntb.Load64(a.Inbound(), 0); got != 2 {
		t.Errorf("after Order this side sees %d, want 2", got)
	}
	if !bytes.HasPrefix(b.Inbound()[64:], []byte("payload")) || !bytes.HasPrefix(a.Inbound()[64:], []byte("answer")) {
		t.Error("payload is not there after Order")
	}
}

// bothMiss does one round: each side stores, and checks whether the other side has
// stored. Side a calls order in between. It reports whether both missed the other's
// store.
func bothMiss(a, b *ntbfault.Device, r uint64, order func()) bool {
	var sawA, sawB bool
	var sides sync.WaitGroup
	sides.Go(func() {
		w := a.Outbound()
		w.Publish64(0, r)
		order()
		sawA = ntb.Load64(a.Inbound(), 0) == r
	})
	sides.Go(func() {
		w := b.Outbound()
		w.Publish64(0, r)
		ntb.Fence()
		sawB = ntb.Load64(b.Inbound(), 0) == r
	})
	sides.Wait()
	return !sawA && !sawB
}

func TestWakeupIsLostWithoutOrderOnly(t *testing.T) {
	a, b := pair(t, ntbfault.Options{StoreDelayMax: 20 * ms})
	lost := 0
	r := uint64(1)
	for ; r <= 100 && lost == 0; r++ {
		if bothMiss(a, b, r, ntb.Fence) {
			lost++
		}
	}
	if lost == 0 {
		t.Error("100 rounds with a fence only, and no wake-up was lost: the delay does nothing")
	}
	for end := r + 100; r < end; r++ {
		if bothMiss(a, b, r, a.Order) {
			t.Fatalf("round %d: wake-up lost although the sleeper called Order", r)
		}
	}
}

func TestCutDropsWhatIsUnderWay(t *testing.T) {
	a, b := pair(t, ntbfault.Options{StoreDelayMin: time.Hour})
	waits := make(chan error, 2)
	for _, d := range []*ntbfault.Device{a, b} {
		w := d.Outbound()
		w.Publish64(0, 1)
		go func() { waits <- d.WaitDoorbell(0) }()
	}
	ordered := make(chan struct{})
	go func() { defer close(ordered); a.Order() }()
	a.Cut()
	<-ordered
	for range 2 {
		if err := <-waits; !errors.Is(err, ntb.ErrLinkDown) {
			t.Errorf("WaitDoorbell: %v, want %v", err, ntb.ErrLinkDown)
		}
	}
	b.Cut() // again, from the other side
	for _, d := range []*ntbfault.Device{a, b} {
		if d.LinkUp() {
			t.Error("link is up after Cut")
		}
		if err := d.WaitDoorbell(1); !errors.Is(err, ntb.ErrLinkDown) {
			t.Errorf("WaitDoorbell: %v, want %v", err, ntb.ErrLinkDown)
		}
		w := d.Outbound()
		w.Publish64(0, 2)
		w.Write(8, []byte("x"))
		d.SetPeerSpad(0, 1)
		d.RingDoorbell(0)
		d.Order()
		if in := d.Inbound(); ntb.Load64(in, 0) != 0 || in[8] != 0 {
			t.Error("a store arrived over a link that is cut")
		}
	}
}

func TestCloseLetsOwnStoresArriveFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := pair(t, ntbfault.Options{StoreDelayMin: 30 * ms})
		ours, theirs := a.Outbound(), b.Outbound()
		for i := range 100 {
			ours.Publish64(8*i, uint64(i+1))
		}
		time.Sleep(20 * ms)
		theirs.Publish64(0, 1)
		inbound := a.Inbound() // memory of ntbmem, which the collector keeps
		a.Close()
		if err := b.WaitDoorbell(0); !errors.Is(err, ntb.ErrLinkDown) {
			t.Fatal(err)
		}
		for i := range 100 {
			if got := ntb.Load64(b.Inbound(), 8*i); got != uint64(i+1) {
				t.Fatalf("word %d is %d after the peer's Close, want %d", i, got, i+1)
			}
		}
		time.Sleep(time.Second)
		if ntb.Load64(inbound, 0) != 0 {
			t.Error("a store arrived in a device that is closed")
		}
	})
}

func TestFullQueueHoldsStoresButNotDoorbells(t *testing.T) {
	a, _ := pair(t, ntbfault.Options{StoreDelayMin: time.Hour, QueueBytes: 1000})
	var stored atomic.Int64
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w := a.Outbound()
		for range 100 {
			w.Write(0, make([]byte, 36)) // 100 with the cost of an entry
			stored.Add(1)
		}
	}()
	for stored.Load() < 10 {
		runtime.Gosched()
	}
	bits := a.Caps().Doorbells
	for range 10000 {
		for bit := range bits {
			a.RingDoorbell(bit)
		}
	}
	if s := a.Stats(); s.DoorbellsMerged != uint64(10000*bits-bits) {
		t.Errorf("%d doorbells merged, want all but one of each bit: %d", s.DoorbellsMerged, 10000*bits-bits)
	}
	if n := stored.Load(); n != 10 {
		t.Errorf("%d stores of 100 bytes fit in a queue of 1000", n)
	}
	a.Cut() // ends the wait of the store
	<-ended
	if s := a.Stats(); s.StoresDelayed != 10 {
		t.Errorf("%d stores were queued, want 10", s.StoresDelayed)
	}
}

func TestDoorbellsThatArePutOffAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x, y := ntbmem.Pair(4096)
		r := &recorder{Device: x}
		a, _ := wrap(t, r, y, ntbfault.Options{DoorbellDelayMax: time.Minute})
		const n = 10000
		for range n {
			a.RingDoorbell(0)
		}
		a.RingDoorbell(1) // another bit's doorbell is not lost because of that
		time.Sleep(2 * time.Minute)
		got, merged := r.all(), a.Stats().DoorbellsMerged
		if merged == 0 || len(got) != n+1-int(merged) || !slices.Contains(got, "ring 1") {
			t.Errorf("%d doorbells rang, %d merged, of %d", len(got), merged, n+1)
		}
	})
}

func TestStoreLongerThanTheQueueArrives(t *testing.T) {
	a, b := pair(t, ntbfault.Options{StoreDelayMax: 10 * us, QueueBytes: 100})
	w := a.Outbound()
	p := bytes.Repeat([]byte{7}, 8<<10)
	for range 3 {
		w.Write(64, p)
	}
	a.Order()
	if !bytes.Equal(b.Inbound()[64:64+len(p)], p) {
		t.Error("it has not arrived")
	}
}

func TestBadOptionsPanic(t *testing.T) {
	x, y := ntbmem.Pair(4096)
	for _, o := range []ntbfault.Options{
		{StoreDelayMin: -1}, {StoreDelayMax: -1}, {DoorbellDelayMax: -1}, {QueueBytes: -1},
		{DropDoorbell: 1.1}, {DropDoorbell: -0.1}, {RepeatDoorbell: math.NaN()},
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%+v: no panic", o)
				}
			}()
			ntbfault.Pair(x, y, o)
		}()
	}
}

// The Order of either side waits for both queues. So it must not hold up the
// other's.
func TestBothSidesMayOrderAtOnce(t *testing.T) {
	leak.Check(t)
	a, b := pair(t, ntbfault.Options{StoreDelayMax: 100 * us, DoorbellDelayMax: 100 * us})
	var sides sync.WaitGroup
	for _, d := range []*ntbfault.Device{a, b} {
		for i := range 2 { // two goroutines of each side
			sides.Go(func() {
				w := d.Outbound()
				for r := range uint64(200) {
					w.Publish64(8*i, r+1)
					d.RingDoorbell(i)
					d.Order()
				}
			})
		}
	}
	sides.Wait()
	for _, d := range []*ntbfault.Device{a, b} {
		for i := range 2 {
			if got := ntb.Load64(d.Inbound(), 8*i); got != 200 {
				t.Errorf("word %d is %d after Order, want 200", i, got)
			}
		}
	}
}

// closing is a device that records uses after Close.
type closing struct {
	ntb.Device
	closed, late atomic.Bool
}

func (c *closing) RingDoorbell(bit int) {
	if c.closed.Load() {
		c.late.Store(true)
	}
	c.Device.RingDoorbell(bit)
}

func (c *closing) Close() error {
	c.closed.Store(true)
	return c.Device.Close()
}

func TestNothingIsLeftAfterBothAreClosed(t *testing.T) {
	for _, o := range []ntbfault.Options{
		{DoorbellDelayMax: 2 * ms, RepeatDoorbell: 0.5},
		{DoorbellDelayMax: 2 * ms, RepeatDoorbell: 0.5, StoreDelayMax: 2 * ms},
		{DoorbellDelayMax: time.Hour, RepeatDoorbell: 1},
	} {
		t.Run(fmt.Sprintf("%+v", o), func(t *testing.T) {
			leak.Check(t)
			x, y := ntbmem.Pair(4096)
			cx, cy := &closing{Device: x}, &closing{Device: y}
			a, b := ntbfault.Pair(cx, cy, o)
			for i := range 200 {
				a.SetPeerSpad(0, uint32(i))
				a.RingDoorbell(i % 8)
				b.RingDoorbell(i % 8)
			}
			a.Close()
			b.Close()
			time.Sleep(5 * ms)
			if cx.late.Load() || cy.late.Load() {
				t.Error("a doorbell rang in a device that is closed")
			}
		})
	}
}
