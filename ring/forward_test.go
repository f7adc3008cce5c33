package ring

import (
	"fmt"
	"testing"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
)

func newMiddle(t testing.TB, o Options, length int) *relay {
	m, err := newRelay(ntbmem.Pair, o, length)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// calls counts the operations for which a device may make a system call. Stores
// never make one.
type calls struct {
	ntb.Device
	n *int
}

func (c calls) Order()               { *c.n++; c.Device.Order() }
func (c calls) RingDoorbell(bit int) { *c.n++; c.Device.RingDoorbell(bit) }

func (c calls) WaitDoorbell(bit int) error {
	*c.n++
	return c.Device.WaitDoorbell(bit)
}

func TestForwardingNeitherAllocatesNorCallsTheSystem(t *testing.T) {
	if lock.Checked {
		t.Skip("checked locks allocate")
	}
	for _, length := range []int{0, 64, 4096, 64 << 10} {
		n := 0
		pair := func(window int) (a, b ntb.Device) {
			a, b = ntbmem.Pair(window)
			return calls{a, &n}, b
		}
		m, err := newRelay(pair, Options{Hosts: 3, Topology: Line}, length)
		if err != nil {
			t.Fatal(err)
		}
		n = 0
		const frames = 100
		if n := testing.AllocsPerRun(frames, func() { m.feed(); m.in.drain(); m.in.pollOnward() }); n > 0 {
			t.Errorf("%d bytes: %v allocations for a frame", length, n)
		}
		if n > 0 {
			t.Errorf("%d bytes: %d calls of the device in %d frames", length, n, frames)
		}
		if m.out.stats.fwdFrames < frames {
			t.Error("nothing was forwarded")
		}
		m.close()
	}
}

// BenchmarkForward measures a node's work to forward a frame, where all slots are
// used in turn.
func BenchmarkForward(b *testing.B) {
	for _, n := range []int{64, 4096, 64 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := newMiddle(b, Options{Hosts: 3, Topology: Line}, n)
			defer m.close()
			b.SetBytes(int64(n))
			b.ReportAllocs()
			for b.Loop() {
				m.feed()
				m.in.drain()
			}
			if m.out.stats.fwdFrames < uint64(b.N) {
				b.Fatal("not forwarded")
			}
		})
	}
}

// BenchmarkPlainCopy copies the same bytes between the same places.
func BenchmarkPlainCopy(b *testing.B) {
	for _, n := range []int{64, 4096, 64 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			slot := frame.HeaderBytes + DefaultFrame
			from, to := ntb.AlignedBytes(DefaultSlots*slot), ntb.AlignedBytes(DefaultSlots*slot)
			b.SetBytes(int64(n))
			i := 0
			for b.Loop() {
				at := i % DefaultSlots * slot
				i++
				copy(to[at:at+n], from[at:at+n])
			}
		})
	}
}
