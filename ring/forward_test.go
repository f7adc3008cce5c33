package ring

import (
	"fmt"
	"testing"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
)

// middle is host 2 of three, whose neighbours are played by the test: frames come
// by feed, and go on by in.drain.
type middle struct {
	o        Options
	n        *Node
	in       *inLane
	out      *outLane
	left     ntb.Device // the neighbour's end
	from, to ntb.Window // what the neighbours store to
	f        frame
	header   [frameHeader]byte
	hop      uint32
	devices  []ntb.Device
}

func newMiddle(t testing.TB, o Options, length int) *middle {
	n := NewNode(MakeID(2, 1))
	if err := n.Join(o); err != nil {
		t.Fatal(err)
	}
	ldev, left := ntbmem.Pair(o.LinkWindow(0))
	rdev, right := ntbmem.Pair(o.LinkWindow(0))
	l, err := newLink(n.router, ldev, Left)
	if err != nil {
		t.Fatal(err)
	}
	r, err := newLink(n.router, rdev, Right)
	if err != nil {
		t.Fatal(err)
	}
	n.router.sides[Left].Store(l)
	n.router.sides[Right].Store(r)
	m := &middle{
		o: n.router.opts, n: n, in: l.in[0], out: r.out[0], left: left, from: left.Outbound(), to: right.Outbound(),
		f:       frame{kind: frameData, src: MakeID(1, 1), dst: MakeID(3, 1), hops: 3, length: uint32(length)},
		devices: []ntb.Device{ldev, rdev},
	}
	m.f.encode(&m.header)
	return m
}

// feed is the left neighbour sending one frame, and the right one having taken
// all that went on.
func (m *middle) feed() {
	m.to.Publish32(laneCredit, m.hop)
	m.put()
}

// put is the left neighbour sending one frame.
func (m *middle) put() {
	at := lanesAt + int(m.hop%uint32(m.o.Slots))*(frameHeader+m.o.FrameBytes)
	m.hop++
	m.from.Write(at+8, m.header[8:])
	m.from.Publish64(at, m.f.first(m.hop))
}

func (m *middle) close() {
	for _, d := range m.devices {
		d.Close()
	}
	m.n.Close()
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
