package sdp

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/internal/testing/ntbfault"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"
)

// faults are the ways in which a bridge misbehaves in these tests, each with its
// seeds. With -short only the first seed is used. Those that take longest come
// first.
var faults = []struct {
	name  string
	seeds []uint64
	o     ntbfault.Options
}{
	{"doorbells lost", []uint64{18}, ntbfault.Options{DropDoorbell: 0.007}},
	{"all", []uint64{20}, ntbfault.Options{
		StoreDelayMax: 50 * time.Microsecond, DoorbellDelayMax: 100 * time.Microsecond, RepeatDoorbell: 0.3, DropDoorbell: 0.007}},
	{"all but lost doorbells", []uint64{15, 16}, ntbfault.Options{
		StoreDelayMax: 200 * time.Microsecond, DoorbellDelayMax: 300 * time.Microsecond, RepeatDoorbell: 0.3}},
	{"stores late by ms", []uint64{9, 10}, ntbfault.Options{StoreDelayMin: time.Millisecond, StoreDelayMax: 2 * time.Millisecond}},
	{"stores late by 100 us", []uint64{7, 8}, ntbfault.Options{StoreDelayMax: 100 * time.Microsecond}},
	{"stores late by us", []uint64{4, 5}, ntbfault.Options{StoreDelayMax: 10 * time.Microsecond}},
	{"stores late by ns", []uint64{1, 2}, ntbfault.Options{StoreDelayMax: 500 * time.Nanosecond}},
	{"doorbells late", []uint64{11, 12}, ntbfault.Options{DoorbellDelayMax: time.Millisecond}},
	{"doorbells repeated", []uint64{13, 14}, ntbfault.Options{RepeatDoorbell: 0.5}},
}

// atMost returns n, or a tenth of it where each wake-up takes as long as a timer.
func atMost(n int, o ntbfault.Options) int {
	if o.StoreDelayMax > 20*time.Microsecond || o.DoorbellDelayMax > 0 || o.DropDoorbell > 0 {
		n /= 10
	}
	return n
}

// onFaults runs a test on a Fabric for each kind of fault and each seed. The slow
// guard may have ended a wait only if doorbells were lost.
func onFaults(t *testing.T, b bounce.Options, f func(t *testing.T, fabric *Fabric, o ntbfault.Options)) {
	leak.Check(t)
	for _, tt := range faults {
		for i, seed := range tt.seeds {
			if i > 0 && testing.Short() {
				break
			}
			t.Run(fmt.Sprintf("%s/seed %d", tt.name, seed), func(t *testing.T) {
				t.Parallel() // they mostly sleep
				o := tt.o
				o.Seed = seed
				fabric, devices := faultyFabric(o, b)
				defer fabric.Close()
				f(t, fabric, o)
				if t.Failed() {
					return
				}
				checkFaults(t, devices(), o)
				if n := fabric.Stats().Rescues; n > 0 && o.DropDoorbell == 0 {
					t.Errorf("%d waits ended by the slow guard", n)
				}
			})
		}
	}
}

// faultyFabric returns a Fabric of its own whose bridges misbehave. devices returns the
// ends of those that have been made.
func faultyFabric(o ntbfault.Options, b bounce.Options) (f *Fabric, devices func() []*ntbfault.Device) {
	var mu sync.Mutex
	var made []*ntbfault.Device
	s := newStack(b)
	s.refs = 1
	s.fabric = openMem(4<<20, func(x, y ntb.Device) (ntb.Device, ntb.Device) {
		mu.Lock()
		defer mu.Unlock()
		o := o
		o.Seed += uint64(len(made)) << 32
		p, q := ntbfault.Pair(x, y, o)
		made = append(made, p, q)
		return p, q
	}, s.start)
	return newFabric(s, &networkCounters{}), func() []*ntbfault.Device {
		mu.Lock()
		defer mu.Unlock()
		return made
	}
}

// checkFaults fails unless the bridges did at least some of what o asks for.
func checkFaults(t *testing.T, devices []*ntbfault.Device, o ntbfault.Options) {
	t.Helper()
	var sum ntbfault.Stats
	for _, d := range devices {
		s := d.Stats()
		sum.StoresDelayed += s.StoresDelayed
		sum.DoorbellsRung += s.DoorbellsRung
		sum.DoorbellsDelayed += s.DoorbellsDelayed
		sum.DoorbellsRepeated += s.DoorbellsRepeated
		sum.DoorbellsDropped += s.DoorbellsDropped
	}
	require.Positive(t, sum.DoorbellsRung)
	require.Equal(t, o.StoreDelayMax > 0, sum.StoresDelayed > 0, "stores delayed")
	require.Equal(t, o.DoorbellDelayMax > 0, sum.DoorbellsDelayed > 0, "doorbells delayed")
	require.Equal(t, o.RepeatDoorbell > 0, sum.DoorbellsRepeated > 0, "doorbells repeated")
	if o.DropDoorbell == 0 || sum.DoorbellsRung > 2000 {
		require.Equal(t, o.DropDoorbell > 0, sum.DoorbellsDropped > 0, "doorbells dropped")
	}
}

// within fails with all stacks if f takes longer than any honest run would.
func within(t *testing.T, limit time.Duration, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(limit):
		t.Fatalf("hangs:\n%s", stacksOfAll())
	}
}

// stacksOfAll returns the stacks of all goroutines.
func stacksOfAll() []byte {
	buf := make([]byte, 1<<20)
	return buf[:runtime.Stack(buf, true)]
}

func TestConnOverFaults(t *testing.T) {
	onFaults(t, bounce.Options{Spin: bounce.DefaultSpin}, func(t *testing.T, f *Fabric, _ ntbfault.Options) {
		nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) { return pipe(f) })
	})
}

// Every wait parks, so that each message needs a wake-up.
func TestPingPongOverFaults(t *testing.T) {
	onFaults(t, bounce.Options{}, func(t *testing.T, f *Fabric, o ntbfault.Options) {
		a, b := mustPipe(t, f)
		rounds := atMost(3000, o)
		within(t, time.Minute, func() {
			var sides sync.WaitGroup
			sides.Go(func() {
				if _, err := io.Copy(b, struct{ io.Reader }{b}); err != nil {
					t.Error("echo:", err)
				}
				b.CloseWrite()
			})
			p, got := make([]byte, 64), make([]byte, 64)
			// A lost doorbell is not always one that was needed.
			lucky := func() bool { return o.DropDoorbell > 0 && f.Stats().Rescues == 0 }
			for i := 0; i < rounds || lucky() && i < 20*rounds; i++ {
				p = p[:1+i%64]
				p[0], p[len(p)-1] = byte(i>>8), byte(i)
				if _, err := a.Write(p); err != nil {
					t.Error("write:", err)
					break
				}
				if _, err := io.ReadFull(a, got[:len(p)]); err != nil || !bytes.Equal(got[:len(p)], p) {
					t.Errorf("round %d: %x, %v, want %x", i, got[:len(p)], err, p)
					break
				}
			}
			a.CloseWrite()
			sides.Wait()
		})
		require.Positive(t, a.Stats().ReadParks)
		if o.DropDoorbell > 0 {
			require.Positive(t, f.Stats().Rescues, "of lost doorbells")
		}
	})
}

// Both sides write at once through small buffers. So both wait for data and for
// room.
func TestBothWriteOverFaults(t *testing.T) {
	onFaults(t, bounce.Options{Buffer: 4096}, func(t *testing.T, f *Fabric, o ntbfault.Options) {
		a, b := mustPipe(t, f)
		n := atMost(2<<20, o)
		within(t, time.Minute, func() {
			var sides sync.WaitGroup
			for i, c := range []*Conn{a, b} {
				sides.Go(func() {
					src := rand.NewChaCha8([32]byte{byte(i)})
					sizes := rand.New(rand.NewPCG(o.Seed, uint64(i)))
					for left := n; left > 0; {
						p := make([]byte, min(left, 1+sizes.IntN(1<<(1+sizes.IntN(14)))))
						src.Read(p)
						if _, err := c.Write(p); err != nil {
							t.Error("write:", err)
							return
						}
						left -= len(p)
					}
					c.CloseWrite()
				})
				sides.Go(func() {
					want := make([]byte, n)
					rand.NewChaCha8([32]byte{byte(1 - i)}).Read(want)
					got, err := io.ReadAll(c)
					if err != nil || !bytes.Equal(got, want) {
						t.Errorf("end %d: %d bytes, %v, equal %v", i, len(got), err, bytes.Equal(got, want))
					}
				})
			}
			sides.Wait()
		})
		require.Positive(t, a.Stats().WriteParks+b.Stats().WriteParks)
	})
}

// Set-up messages also wait for the peer's answer. What is written before Close
// arrives.
func TestDialsOverFaults(t *testing.T) {
	onFaults(t, bounce.Options{}, func(t *testing.T, f *Fabric, o ntbfault.Options) {
		ln, err := f.Listen("sdp", "localhost:0")
		require.NoError(t, err)
		defer ln.Close()
		want := make([]byte, 9000)
		rand.NewChaCha8([32]byte{byte(o.Seed)}).Read(want)
		within(t, time.Minute, func() {
			var sides sync.WaitGroup
			defer sides.Wait()
			n := atMost(200, o)
			sides.Go(func() {
				for i := range n {
					c, err := f.Dial("sdp", ln.Addr().String())
					if err != nil {
						t.Errorf("dial %d: %v", i, err)
						ln.Close()
						return
					}
					if _, err := c.Write(want); err != nil {
						t.Errorf("write %d: %v", i, err)
					}
					c.Close()
				}
			})
			for i := range n {
				c, err := ln.Accept()
				if err != nil {
					t.Errorf("accept %d: %v", i, err)
					return
				}
				got, err := io.ReadAll(c)
				if err != nil || !bytes.Equal(got, want) {
					t.Errorf("connection %d: %d bytes, %v, equal %v", i, len(got), err, bytes.Equal(got, want))
				}
				c.Close()
			}
		})
	})
}
