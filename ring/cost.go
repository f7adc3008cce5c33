package ring

import (
	"errors"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
)

// relay is host 2 of a line of three, whose neighbours are played: frames with a
// header of their own are put into its window by put, and go on by in.drain.
type relay struct {
	o           Options
	n           *Node
	in          *inLane
	out         *outLane
	left, right ntb.Device // the neighbours' ends
	from, to    ntb.Window // what the neighbours store to
	f           frame
	header      [frameHeader]byte
	hop         uint64 // frames put
	devices     []ntb.Device
}

// newRelay makes one whose frames have bodies of length bytes. pair makes the two
// ends of a bridge with windows of that many bytes.
func newRelay(pair func(window int) (a, b ntb.Device), o Options, length int) (*relay, error) {
	n := NewNode(MakeID(2, 1))
	if err := n.Join(o); err != nil {
		return nil, err
	}
	o = n.router.opts
	m := &relay{
		o: o, n: n,
		f: frame{kind: frameData, src: MakeID(1, 1), dst: MakeID(3, 1), hops: 3, length: uint32(length)},
	}
	m.f.encode(&m.header)
	for d, far := range []*ntb.Device{Left: &m.left, Right: &m.right} {
		var near ntb.Device
		near, *far = pair(o.LinkWindow(0))
		m.devices = append(m.devices, near)
		l, err := newLink(n.router, near, Direction(d))
		if err != nil {
			m.close()
			return nil, err
		}
		n.router.sides[d].Store(l)
	}
	m.in, m.out = n.router.sides[Left].Load().in[0], n.router.sides[Right].Load().out[0]
	m.from, m.to = m.left.Outbound(), m.right.Outbound()
	return m, nil
}

// feed is the left neighbour sending one frame, and the right one having taken
// all that went on.
func (m *relay) feed() {
	m.to.Publish32(laneCredit, uint32(m.hop))
	m.put()
}

// put is the left neighbour sending one frame.
func (m *relay) put() {
	at := lanesAt + int(m.hop%uint64(m.o.Slots))*(frameHeader+m.o.FrameBytes)
	m.hop++
	m.from.Write(at+8, m.header[8:])
	m.from.Publish64(at, m.f.first(uint32(m.hop)))
}

func (m *relay) close() {
	for _, d := range m.devices {
		d.Close()
	}
	m.n.Close()
}

// ForwardCost measures what a node does for a frame of length bytes, a multiple of
// 8, that goes on: it takes it, copies it to the next link, and gives its slot back.
// It is that work alone, on one processor, in this process, n frames one after the
// other; copied is a plain copy of the same bytes between the same places. pair makes
// the two ends of a bridge with windows of that many bytes.
func ForwardCost(pair func(window int) (a, b ntb.Device), length, n int) (forwarded, copied time.Duration, err error) {
	m, err := newRelay(pair, Options{Nodes: 3, Topology: Line}, length)
	if err != nil {
		return 0, 0, err
	}
	defer m.close()
	run := func(f func()) time.Duration {
		start := time.Now()
		for range n {
			f()
		}
		return time.Since(start) / time.Duration(n)
	}
	step := func() { m.feed(); m.in.drain() }
	run(step) // memory is touched for the first time
	forwarded = run(step)
	if m.out.stats.fwdFrames != uint64(2*n) {
		return 0, 0, errors.New("ring: frames were not forwarded")
	}
	i := 0
	copied = run(func() {
		at := i % m.o.Slots * m.out.slotBytes()
		m.out.queue.Write(at, m.in.slots[at:at+length])
		i++
	})
	return forwarded, copied, nil
}
