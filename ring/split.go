package ring

import (
	"sync"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/ntb"
)

// split is the part of a link's device that belongs to the neighbour's direct Peer:
// the rest of the windows, and the doorbell bits above those of the lanes. Everything else passes
// through: a store is the device's store.
type split struct {
	ntb.Device
	link   *Link
	caps   ntb.Caps
	off    int // of the windows
	bit    int // first doorbell bit
	closed atomic.Bool
	once   sync.Once
}

func newSplit(l *Link, off int) *split {
	s := &split{Device: l.dev, link: l, caps: l.caps, off: off, bit: l.opts.Lanes}
	s.caps.Doorbells -= s.bit
	s.caps.Mapper = nil // its offsets are those of the whole window
	return s
}

func (s *split) Caps() ntb.Caps { return s.caps }

func (s *split) Inbound() []byte {
	in := s.Device.Inbound()
	return in[s.off:len(in):len(in)]
}

func (s *split) Outbound() ntb.Window {
	out := s.Device.Outbound()
	return out.Part(s.off, out.Len()-s.off)
}

func (s *split) RingDoorbell(bit int) { s.Device.RingDoorbell(s.bit + bit) }

func (s *split) WaitDoorbell(bit int) error {
	err := ntb.ErrClosed
	if !s.closed.Load() {
		err = s.Device.WaitDoorbell(s.bit + bit)
	}
	if s.closed.Load() {
		return ntb.ErrClosed
	}
	return err
}

func (s *split) DMA(i int) ntb.DMAChannel { return splitDMA{s.Device.DMA(i), s.off} }

// splitDMA is a channel whose offsets are those of the part.
type splitDMA struct {
	ntb.DMAChannel
	off int
}

func (d splitDMA) Start(off int, src []byte, done func(error)) bool {
	return d.DMAChannel.Start(d.off+off, src, done)
}

// Reclaim implements ntb.Device.
func (s *split) Reclaim(off, n int) error {
	if len := len(s.Device.Inbound()) - s.off; off < 0 || n < 0 || off > len-n {
		panic("ring: reclaim outside of the window")
	}
	if s.closed.Load() {
		return ntb.ErrClosed
	}
	return s.Device.Reclaim(s.off+off, n)
}

// Close takes the link down. The memory is released when the lanes do not use it
// either.
func (s *split) Close() error {
	s.once.Do(func() {
		s.closed.Store(true)
		s.Device.Disable()
		s.link.release()
	})
	return nil
}
