package ring

import (
	"fmt"
	"testing"

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

func TestForwardingDoesNotAllocate(t *testing.T) {
	m := newMiddle(t, Options{Nodes: 3, Topology: Line}, 4096)
	defer m.close()
	if n := testing.AllocsPerRun(100, func() { m.feed(); m.in.drain() }); n > 0 {
		t.Errorf("%v allocations for a frame", n)
	}
	if m.out.stats.fwdFrames == 0 {
		t.Error("nothing was forwarded")
	}
}

// What a node does for a frame that goes on, all slots in use in turn.
func BenchmarkForward(b *testing.B) {
	for _, n := range []int{64, 4096, 64 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			m := newMiddle(b, Options{Nodes: 3, Topology: Line}, n)
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

// A copy of the same bytes between the same places.
func BenchmarkPlainCopy(b *testing.B) {
	for _, n := range []int{64, 4096, 64 << 10} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			slot := frameHeader + defaultFrame
			from, to := ntb.AlignedBytes(defaultSlots*slot), ntb.AlignedBytes(defaultSlots*slot)
			b.SetBytes(int64(n))
			i := 0
			for b.Loop() {
				at := i % defaultSlots * slot
				i++
				copy(to[at:at+n], from[at:at+n])
			}
		})
	}
}
