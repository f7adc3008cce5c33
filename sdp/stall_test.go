package sdp

import (
	"sync"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/ntb"
)

// gate holds up the callers that pass it while it is shut.
type gate struct {
	mu     sync.Mutex
	open   chan struct{} // closed by release; nil while the gate is open; guarded by mu
	passed atomic.Int64  // callers that came while it was shut
}

// shut makes all callers wait until release.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gate) release() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.open != nil {
		close(g.open)
		g.open = nil
	}
}

func (g *gate) pass() {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open != nil {
		g.passed.Add(1)
		<-open
	}
}

// stall wraps a device. Whatever sends something to the peer blocks while its gate is
// shut, as a processor's store does on a bridge that takes none. So do doorbells,
// which never block on a device that keeps the contract.
type stall struct {
	ntb.Device
	gate gate
	// id is this side's id, as announced when a link of several hosts is brought up.
	id atomic.Uint32
	// other is the peer's end. Immutable.
	other *stall
}

// idSpad is the scratchpad of a link's bring-up that contains the id, see package
// ring.
const idSpad = 1

// newStalls wraps the two ends of a bridge.
func newStalls(a, b ntb.Device) (x, y *stall) {
	x, y = &stall{Device: a}, &stall{Device: b}
	x.other, y.other = y, x
	return x, y
}

func (s *stall) Outbound() ntb.Window {
	w := s.Device.Outbound()
	return ntb.SinkWindow(ntb.Basic(&stallSink{s, w}), w.Len())
}

func (s *stall) SetPeerSpad(i int, v uint32) {
	s.gate.pass()
	if i == idSpad {
		s.id.Store(v)
	}
	s.Device.SetPeerSpad(i, v)
}

func (s *stall) RingDoorbell(bit int) {
	s.gate.pass()
	s.Device.RingDoorbell(bit)
}

func (s *stall) Order() {
	s.gate.pass()
	s.Device.Order()
}

// stallSink is the outbound window of a stall.
type stallSink struct {
	s   *stall
	win ntb.Window
}

func (k *stallSink) Store(off int, p []byte) {
	k.s.gate.pass()
	k.win.Write(off, p)
}

func (k *stallSink) Publish(off int, v uint64, width int) {
	k.s.gate.pass()
	if width == 4 {
		k.win.Publish32(off, uint32(v))
	} else {
		k.win.Publish64(off, v)
	}
}
