package ring

import (
	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/ntb"
)

// relay is host 2 of a line of three, whose neighbours are simulated. put stores
// frames, each with a header of its own, into the relay's window. in.drain forwards
// them.
type relay struct {
	o           Options
	n           *Node
	in          *inLane
	out         *outLane
	left, right ntb.Device // the neighbours' ends of the bridges
	from, to    ntb.Window // the windows that the neighbours store to
	f           frame.Header
	header      [frame.HeaderBytes]byte
	hop         uint64 // frames put
	devices     []ntb.Device
}

// newRelay makes a relay for frames with bodies of length bytes. pair makes the two
// ends of a bridge with windows of the given number of bytes.
func newRelay(pair func(window int) (a, b ntb.Device), o Options, length int) (*relay, error) {
	n, err := Join(link.NewNode(link.MakeID(2, 1)), o)
	if err != nil {
		return nil, err
	}
	o = n.router.opts
	m := &relay{
		o: o, n: n,
		f: frame.Header{Kind: frame.Data, Src: link.MakeID(1, 1), Dst: link.MakeID(3, 1), Hops: 3, Length: uint32(length)},
	}
	m.f.Encode(&m.header)
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
		m.o = *l.opts
	}
	m.in, m.out = n.router.sides[Left].Load().in[0], n.router.sides[Right].Load().out[0]
	m.from, m.to = m.left.Outbound(), m.right.Outbound()
	return m, nil
}

// feed stores one frame as the left neighbour, after taking all frames as the right
// one.
func (m *relay) feed() {
	m.to.Publish32(laneCredit, uint32(m.hop))
	m.put()
}

// put stores one frame as the left neighbour.
func (m *relay) put() {
	at := lanesAt + int(m.hop%uint64(m.o.Slots))*(frame.HeaderBytes+m.o.FrameBytes)
	m.hop++
	m.from.Write(at+8, m.header[8:])
	m.from.Publish64(at, m.f.First(uint32(m.hop)))
}

func (m *relay) close() {
	for _, d := range m.devices {
		d.Close()
	}
	m.n.Close()
}
