package recorder

import (
	"encoding/binary"
	"fmt"

	"github.com/ntbnet/ntbnet/ntb"
)

var (
	_ ntb.Device = (*Device)(nil)
	_ ntb.Sink   = (*sink)(nil)
)

// Device is one end of a bridge. Its stores are checked.
type Device struct {
	ntb.Device
	rec    *Recorder // immutable
	way    way       // immutable
	closed bool      // guarded by rec.mu
}

// Recorder returns the Recorder that checks the device.
func (d *Device) Recorder() *Recorder { return d.rec }

// way is a side of a cable. It says who stores where.
type way struct {
	cable *cable
	side  int
}

// Outbound implements ntb.Device.
func (d *Device) Outbound() ntb.Window {
	w := d.Device.Outbound()
	return ntb.SinkWindow(&sink{d, w}, w.Len())
}

// SetPeerSpad implements ntb.Device.
func (d *Device) SetPeerSpad(i int, v uint32) {
	d.rec.mu.Lock()
	d.way.cable.spad(d.way.side, i, v)
	d.rec.mu.Unlock()
	d.Device.SetPeerSpad(i, v)
}

// Close implements ntb.Device.
func (d *Device) Close() error {
	d.rec.mu.Lock()
	d.closed = true
	d.rec.mu.Unlock()
	return d.Device.Close()
}

// sink checks stores, then passes them on.
type sink struct {
	d   *Device
	win ntb.Window
}

// Store implements ntb.Sink.
func (s *sink) Store(off int, p []byte) {
	s.check(store{op: opStore, off: off, n: len(p), p: p})
	s.win.Write(off, p)
}

// Store64 implements ntb.Sink.
func (s *sink) Store64(off int, v uint64) {
	done := s.check(word(opStore64, off, v, 8))
	s.win.Store64(off, v)
	s.done(done)
}

// Publish implements ntb.Sink.
func (s *sink) Publish(off int, v uint64, width int) {
	if width == 4 {
		done := s.check(word(opPublish32, off, v, 4))
		s.win.Publish32(off, uint32(v))
		s.done(done)
		return
	}
	done := s.check(word(opPublish64, off, v, 8))
	s.win.Publish64(off, v)
	s.done(done)
}

// Update implements ntb.Sink. For the protocol it is a publish.
func (s *sink) Update(off int, v uint64, width int) {
	if width == 4 {
		done := s.check(word(opPublish32, off, v, 4))
		s.win.Update32(off, uint32(v))
		s.done(done)
		return
	}
	done := s.check(word(opPublish64, off, v, 8))
	s.win.Update64(off, v)
	s.done(done)
}

// check checks a store that is about to be made. It returns the claim on the stored
// word, if the word has one writer at a time.
func (s *sink) check(st store) *claim {
	d := s.d
	d.rec.mu.Lock()
	defer d.rec.mu.Unlock()
	if d.closed {
		d.rec.violated(nil, "%s of %d bytes at %#x after Close of the device", st.op, st.n, st.off)
	}
	return d.way.cable.store(d.way.side, st)
}

func (s *sink) done(c *claim) {
	if c != nil {
		s.d.rec.mu.Lock()
		c.taken = false
		s.d.rec.mu.Unlock()
	}
}

// claim is a word that has one writer at a time.
type claim struct{ taken bool }

// take claims a word for a store. The caller holds the recorder's lock.
func (c *claim) take(m *memory, st *store, h *history) *claim {
	if c.taken {
		m.ledger.rec.violated(h, "two writers of the word at %#x at once", st.off)
	}
	c.taken = true
	return c
}

// store is one store.
type store struct {
	op  op
	off int
	n   int
	v   uint64 // of a word
	p   []byte // of bytes
}

func word(o op, off int, v uint64, width int) store { return store{op: o, off: off, n: width, v: v} }

// bytes returns the bytes that are stored.
func (s *store) bytes() []byte {
	if s.p != nil || s.op == opStore || s.op == opDMA {
		return s.p
	}
	return binary.LittleEndian.AppendUint64(nil, s.v)[:s.n]
}

// DMA implements ntb.Device.
func (d *Device) DMA(i int) ntb.DMAChannel { return &channel{d.Device.DMA(i), d} }

type channel struct {
	ntb.DMAChannel
	d *Device
}

// Start implements ntb.DMAChannel. Payload counts as stored when the copy is done.
func (c *channel) Start(off int, src []byte, done func(error)) bool {
	d := c.d
	st := store{op: opDMA, off: off, n: len(src), p: src}
	return c.DMAChannel.Start(off, src, func(err error) {
		if err == nil {
			d.rec.mu.Lock()
			d.way.cable.store(d.way.side, st)
			d.rec.mu.Unlock()
		}
		done(err)
	})
}

func (s *store) String() string { return fmt.Sprintf("%v of %d bytes at %#x", s.op, s.n, s.off) }
