package ring

import "github.com/ntbnet/ntbnet/internal/frame"

import "github.com/ntbnet/ntbnet/ntb"

// spied is the device of a link with one lane, over which a test sees the frames go: those
// that the node is about to send, and those that it has taken, before it gives credit for
// them. Lanes are locked meanwhile.
type spied struct {
	ntb.Device
	o   *Options
	see func(f frame.Header, sent bool)
}

func (s *spied) Outbound() ntb.Window {
	w := s.Device.Outbound()
	return ntb.SinkWindow(&spy{spied: s, w: w}, w.Len())
}

// spy passes stores on to a window.
type spy struct {
	*spied
	w      ntb.Window
	header [frame.HeaderBytes]byte // of the frame that is sent next
}

func (s *spy) slotBytes() int { return frame.HeaderBytes + s.o.FrameBytes }

// inSlot returns the offset of a store in its slot, or -1 if it is not in a slot.
func (s *spy) inSlot(off int) int {
	if off < lanesAt || off >= lanesAt+s.o.laneBytes() {
		return -1
	}
	return (off - lanesAt) % s.slotBytes()
}

func (s *spy) Store(off int, p []byte) {
	if s.inSlot(off) == 8 {
		copy(s.header[8:], p)
	}
	s.w.Write(off, p)
}

func (s *spy) Store64(off int, v uint64) { s.w.Store64(off, v) }

func (s *spy) Publish(off int, v uint64, width int) {
	var f frame.Header
	switch {
	case width == 8 && s.inSlot(off) == 0:
		slot := ntb.AlignedBytes(s.slotBytes())
		copy(slot, s.header[:])
		if frame.Read(slot, v, &f) {
			s.see(f, true)
		}
	case width == 4 && off == laneCredit:
		at := lanesAt + int((v-1)%uint64(s.o.Slots))*s.slotBytes()
		slot := s.Device.Inbound()[at : at+s.slotBytes()]
		if frame.Read(slot, ntb.Load64(slot, 0), &f) {
			s.see(f, false)
		}
	}
	if width == 8 {
		s.w.Publish64(off, v)
	} else {
		s.w.Publish32(off, uint32(v))
	}
}

func (s *spy) Update(off int, v uint64, width int) {
	if width == 8 {
		s.w.Update64(off, v)
	} else {
		s.w.Update32(off, uint32(v))
	}
}
