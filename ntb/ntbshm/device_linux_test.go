//go:build linux && (amd64 || arm64)

package ntbshm

import (
	"bytes"
	"errors"
	"os"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
	"golang.org/x/sys/unix"
)

var small = Options{Window: 1 << 16, Doorbells: 2}

func TestStoresArriveInThePeersWindow(t *testing.T) {
	a, b := pair(t, small)
	for _, end := range [][2]ntb.Device{{a, b}, {b, a}} {
		from, to := end[0], end[1]
		if got := len(to.Inbound()); got != small.Window || cap(to.Inbound()) != got {
			t.Fatalf("inbound window of %d bytes, want %d", got, small.Window)
		}
		if !bytes.Equal(to.Inbound(), make([]byte, small.Window)) {
			t.Fatal("a new window is not zero")
		}
		w := from.Outbound()
		w.Write(small.Window-3, []byte("end"))
		w.Publish64(0, 42)
		if got := ntb.Load64(to.Inbound(), 0); got != 42 {
			t.Errorf("published word is %d, want 42", got)
		}
		if got := to.Inbound()[small.Window-3:]; string(got) != "end" {
			t.Errorf("last bytes are %q", got)
		}
	}
}

func TestEndsMayHaveWindowsOfDifferentSize(t *testing.T) {
	ca, cb := cables(t)
	other := goNew(cb, Options{Window: 8192})
	a, err := New(ca, Options{Window: 1 << 20})
	r := <-other
	if err != nil || r.err != nil {
		t.Fatal(err, r.err)
	}
	defer a.Close()
	defer r.dev.Close()
	out := a.Outbound()
	if len(a.Inbound()) != 1<<20 || out.Len() != 8192 {
		t.Errorf("inbound %d, outbound %d", len(a.Inbound()), out.Len())
	}
}

func TestScratchpads(t *testing.T) {
	a, b := pair(t, small)
	for i := range a.Caps().Scratchpads {
		if got := b.Spad(i); got != 0 {
			t.Errorf("new scratchpad %d is %#x", i, got)
		}
		a.SetPeerSpad(i, uint32(100+i))
	}
	for i := range a.Caps().Scratchpads {
		if got := b.Spad(i); got != uint32(100+i) {
			t.Errorf("scratchpad %d is %d", i, got)
		}
	}
	if !bytes.Equal(b.Inbound()[:64], make([]byte, 64)) {
		t.Error("scratchpads are part of the window")
	}
	a.Close()
	_ = b.WaitDoorbell(0)
	if got := b.Spad(3); got != ^uint32(0) {
		t.Errorf("scratchpad without a link is %#x, want all ones", got)
	}
}

func TestEachDoorbellBitWakesItsOwnWaiter(t *testing.T) {
	a, b := pair(t, small)
	for bit := range small.Doorbells {
		done := make(chan error, 1)
		go func() { done <- b.WaitDoorbell(bit) }()
		a.RingDoorbell(bit)
		if err := <-done; err != nil {
			t.Errorf("bit %d: %v", bit, err)
		}
	}
	// Rings before the wait are kept, and many count as one.
	for range 1000 {
		a.RingDoorbell(0)
	}
	if err := b.WaitDoorbell(0); err != nil {
		t.Error(err)
	}
	if b.(*device).bells[0].rung(0) {
		t.Error("the doorbell was not cleared by waiting")
	}
}

func TestRingingTakesNoMemory(t *testing.T) {
	if lock.Checked {
		t.Skip("checked locks allocate")
	}
	a, _ := pair(t, small)
	if n := testing.AllocsPerRun(1000, func() { a.RingDoorbell(1) }); n != 0 {
		t.Errorf("%v allocations for each ring", n)
	}
}

func TestCloseTakesTheLinkDownAndWakesAllWaiters(t *testing.T) {
	a, b := pair(t, small)
	var wg sync.WaitGroup
	for _, end := range []struct {
		dev  ntb.Device
		want error
	}{{a, ntb.ErrClosed}, {b, ntb.ErrLinkDown}} {
		for bit := range small.Doorbells {
			wg.Go(func() {
				if err := end.dev.WaitDoorbell(bit); err != end.want {
					t.Errorf("waiter: %v, want %v", err, end.want)
				}
			})
		}
	}
	out := a.Outbound()
	out.Publish64(8, 7)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if a.LinkUp() || b.LinkUp() {
		t.Error("the link is up after Close")
	}
	for range 3 {
		if err := b.WaitDoorbell(1); err != ntb.ErrLinkDown {
			t.Errorf("later wait: %v", err)
		}
	}
	if got := ntb.Load64(b.Inbound(), 8); got != 7 {
		t.Errorf("what was stored before the link went down is %d", got)
	}
	out = b.Outbound()
	out.Publish64(0, 1) // the store vanishes
	b.RingDoorbell(0)
	b.SetPeerSpad(0, 1)
	if a.Close() != nil || b.Close() != nil || b.Close() != nil {
		t.Error("Close fails")
	}
	if err := b.WaitDoorbell(0); err != ntb.ErrClosed {
		t.Errorf("wait after Close: %v", err)
	}
	if err := b.Reclaim(0, 4096); err != ntb.ErrClosed {
		t.Errorf("reclaim after Close: %v", err)
	}
}

func TestCallsMayRaceWithClose(t *testing.T) {
	for range 50 {
		a, b := pair(t, small)
		var wg sync.WaitGroup
		var started sync.WaitGroup
		for _, dev := range []ntb.Device{a, b} {
			for range 2 {
				started.Add(1)
				wg.Go(func() {
					started.Done()
					for i := range 2000 {
						dev.RingDoorbell(i & 1)
						dev.SetPeerSpad(i&15, 1)
						if v := dev.Spad(i & 15); v > 1 && v != ^uint32(0) {
							t.Errorf("scratchpad is %#x", v)
						}
						_ = dev.Reclaim(0, 4096)
					}
				})
			}
		}
		started.Wait()
		a.Close()
		b.Close()
		wg.Wait()
	}
}

// TestOrderPairsWithThePeersStores is Dekker's test. Each side stores and then
// loads, and one of the two must see the other's store. The side that calls Order
// is the one that parks. The other side fences only if Caps says so.
func TestOrderPairsWithThePeersStores(t *testing.T) {
	a, b := pair(t, small)
	const rounds = 20_000
	const meet = 4096 // offset of the word by which the sides begin a round together
	seen := [2][]bool{make([]bool, rounds), make([]bool, rounds)}
	var wg sync.WaitGroup
	for side, d := range []ntb.Device{a, b} {
		wg.Go(func() {
			in, out := d.Inbound(), d.Outbound()
			parks, fence := side == 0, d.Caps().FenceToLook
			for i := range rounds {
				out.Publish64(meet, uint64(i+1))
				for spins := 1; ntb.Load64(in, meet) < uint64(i+1); spins++ {
					if spins%1000 == 0 {
						runtime.Gosched()
					}
				}
				// The side that saw the other last is ahead by the time that a
				// store takes. It is delayed by every amount around that.
				for range (i * (1 + side*6)) % 400 {
				}
				out.Publish64(0, uint64(i+1))
				if parks {
					d.Order()
				} else if fence {
					ntb.Fence()
				}
				seen[side][i] = ntb.Load64(in, 0) >= uint64(i+1)
			}
		})
	}
	wg.Wait()
	for i := range rounds {
		if !seen[0][i] && !seen[1][i] {
			t.Fatalf("round %d: neither side saw the other's store", i)
		}
	}
}

func TestReclaimedPagesReadAsZero(t *testing.T) {
	page := os.Getpagesize()
	o := Options{Window: 16 * page}
	a, b := pair(t, o)
	fill := bytes.Repeat([]byte{0xaa}, o.Window)
	out := a.Outbound()
	out.Write(0, fill)
	if err := b.Reclaim(page-1, 3*page+1); err != nil {
		t.Fatal(err)
	}
	// Pages are those of the file, so they are counted from its beginning.
	first := (headerSize+page-1+page-1)/page*page - headerSize
	end := (headerSize+4*page)/page*page - headerSize
	want := bytes.Clone(fill)
	clear(want[first:end])
	if !bytes.Equal(b.Inbound(), want) {
		t.Errorf("window is wrong after Reclaim; zero bytes: %d, want %d", bytes.Count(b.Inbound(), []byte{0}), end-first)
	}
	out.Write(0, fill)
	if !bytes.Equal(b.Inbound(), fill) {
		t.Error("reclaimed pages do not take stores")
	}
	if err := b.Reclaim(5, 100); err != nil || !bytes.Equal(b.Inbound(), fill) {
		t.Errorf("a range without a whole page changed memory: %v", err)
	}
	for _, bad := range [][2]int{{-1, 1}, {0, -1}, {0, o.Window + 1}, {o.Window, 1}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Reclaim(%d, %d) did not panic", bad[0], bad[1])
				}
			}()
			_ = b.Reclaim(bad[0], bad[1])
		}()
	}
}

func TestNothingIsLeftAfterClose(t *testing.T) {
	pair := func() {
		ca, cb := cables(t)
		other := goNew(cb, small)
		a, err := New(ca, small)
		r := <-other
		if err != nil || r.err != nil {
			t.Fatal(err, r.err)
		}
		go r.dev.WaitDoorbell(0)
		a.RingDoorbell(0)
		if mappings(t) != 4 {
			t.Fatalf("%d mappings while two ends are open, want 4", mappings(t))
		}
		a.Close()
		r.dev.Close()
	}
	startPoller(t)
	fdsBefore, goroutines := openFiles(t), runtime.NumGoroutine()
	for range 50 {
		pair()
	}
	settled(t, fdsBefore)
	if got := mappings(t); got != 0 {
		t.Errorf("%d mappings are left", got)
	}
	// The test's own goroutines may need a moment to end.
	for wait := 0; runtime.NumGoroutine() > goroutines && wait < 500; wait++ {
		time.Sleep(10 * time.Millisecond)
	}
	if got := runtime.NumGoroutine(); got > goroutines {
		t.Errorf("%d goroutines, %d before", got, goroutines)
	}
}

// The peer learns why, whether it sends its own half before the other side hangs up or after that.
func TestTheReasonForAMissingHalfArrives(t *testing.T) {
	for _, late := range []bool{false, true} {
		ca, cb := cables(t)
		var other <-chan result
		if !late {
			other = goNew(cb, small)
		}
		if _, err := ca.Write(noHalf(unix.EFBIG)); err != nil {
			t.Fatal(err)
		}
		ca.Close()
		if late {
			other = goNew(cb, small)
		}
		r := <-other
		half := new(HalfError)
		if !errors.As(r.err, &half) || !half.Peer || !errors.Is(r.err, unix.EFBIG) {
			t.Errorf("late %v: %v", late, r.err)
		}
	}
}

func TestAHalfThatCannotBeMade(t *testing.T) {
	var before unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	ca, cb := cables(t)
	unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: 4096, Max: before.Max})
	_, err := New(ca, small)
	unix.Setrlimit(unix.RLIMIT_FSIZE, &before)
	half := new(HalfError)
	if !errors.As(err, &half) || half.Peer || !errors.Is(err, unix.EFBIG) {
		t.Errorf("this side: %v", err)
	}
	if _, err = New(cb, small); !errors.As(err, &half) || !half.Peer || !errors.Is(err, unix.EFBIG) {
		t.Errorf("the peer: %v", err)
	}
}
