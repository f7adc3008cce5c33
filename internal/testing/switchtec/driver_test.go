package switchtec

import (
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/pcimodel"
	"github.com/stretchr/testify/require"
)

// host is a machine with a function, and does what the drivers do. Its methods have the names that functions have there.
type host struct {
	pcimodel.Machine // what it does not implement is not called
	t                *testing.T
	f                pcimodel.Function
	self             uint64 // partition
	peer             uint64
	memory           [4 << 20]byte
	absent           bool // it may not master the bus
	raised           []int
}

// Places in a host's memory, whose first byte has the address memoryAt.
const (
	memoryAt = 0x4000_0000
	sharedAt = memoryAt + 0x30000  // the page of the driver's struct shared_mw
	bufferAt = memoryAt + 0x200000 // a client's buffer
)

const (
	magic    = 0x45cc0001 // SWITCHTEC_NTB_MAGIC
	lutSize  = 0x10000
	directAt = lutEntries * lutSize
)

func (h *host) Raise(vector int)         { h.raised = append(h.raised, vector) }
func (h *host) Base(bar int) uint64      { return 0 }
func (h *host) at(address uint64) []byte { return h.memory[address-memoryAt:] }

func (h *host) Memory(address uint64, n int) []byte {
	if h.absent || address < memoryAt || address-memoryAt+uint64(n) > uint64(len(h.memory)) {
		return nil
	}
	return h.at(address)[:n]
}

// interrupts returns what was raised since it was called last.
func (h *host) interrupts() []int {
	r := h.raised
	h.raised = nil
	return r
}

func (h *host) read(offset uint64, size int) uint64     { return h.f.Read(0, offset, size) }
func (h *host) write(offset uint64, size int, v uint64) { h.f.Write(0, offset, size, v) }
func (h *host) control(p uint64) uint64                 { return control + controlSize*p }
func (h *host) dbmsg() uint64                           { return dbmsg + dbmsgSize*h.self }

func newHosts(t *testing.T) (*Pair, *host, *host) {
	s := New()
	f := s.Functions()
	a, b := &host{t: t, f: f[0], self: 0, peer: 1}, &host{t: t, f: f[1], self: 1, peer: 0}
	a.f.Attach(a)
	b.f.Attach(b)
	return s, a, b
}

// partOp is switchtec_ntb_part_op, with what the other side does while it sleeps. It returns the state that it
// sees.
func (h *host) partOp(ctl, op uint64, meanwhile ...func()) uint64 {
	h.write(ctl+partitionOp, 4, op)
	for _, f := range meanwhile {
		f()
	}
	return h.read(ctl+partitionStatus, 4) & 0xffff
}

// configured has a change of a control block between its lock and its configuration.
func (h *host) configured(ctl uint64, change func()) {
	h.t.Helper()
	require.EqualValues(h.t, statusLocked, h.partOp(ctl, opLock))
	change()
	require.EqualValues(h.t, statusNormal, h.partOp(ctl, opCfg))
}

// alias is quirk_switchtec_ntb_dma_alias, which the kernel calls before.
func (h *host) alias() {
	h.t.Helper()
	require.Equal(h.t, h.self, h.read(ntbInfo+1, 1))
	for i := range h.read(h.control(h.peer)+0x1c, 2) {
		require.Equal(h.t, i, h.read(h.control(h.peer)+0x400+4*i, 4)>>1&0xff)
	}
	require.Zero(h.t, h.read(h.control(33)+0x1c, 2))
}

// probe is switchtec_pci_probe.
func (h *host) probe() {
	h.t.Helper()
	require.EqualValues(h.t, device, h.read(sysInfo+deviceID, 4))
	require.Equal(h.t, h.self, h.read(sysInfo+partitionID, 1))
	require.EqualValues(h.t, 2, h.read(ntbInfo+partitionCount, 1))
	n := uint64(0)
	for h.read(portCSR+portCSRSize*n, 2) == vendor {
		n++
	}
	require.EqualValues(h.t, 4, n)
	require.Zero(h.t, h.read(0x81c, 4), "no DMA for MRPC")
	require.EqualValues(h.t, eventVector, h.read(partConfig+partConfigSize*h.self+0x100, 2))
	for i := range n {
		h.write(portCSR+portCSRSize*i+0xd30, 4, eventOccurred|eventInterrupt)
	}
}

// add is switchtec_ntb_add.
func (h *host) add() {
	t, self, peer := h.t, h.control(h.self), h.control(h.peer)
	t.Helper()
	h.alias()
	h.probe()
	require.EqualValues(t, 1<<h.peer, h.read(ntbInfo+0x24+16*h.self, 8))
	require.Zero(t, h.read(ntbInfo+0x20+16*h.peer, 1), "no crosslink")
	require.EqualValues(t, 3, h.read(ntbInfo+4, 4))
	for _, ctl := range []uint64{self, peer} { // switchtec_ntb_init_mw
		for bar := range uint64(6) {
			require.Equal(t, bar == windowBAR, h.read(ctl+0x40+16*bar, 4)&barValid != 0, bar)
		}
		require.EqualValues(t, lutEntries, h.read(ctl+0x14, 2))
	}
	require.GreaterOrEqual(t, h.read(self+0x1c, 2), uint64(2)) // config_req_id_table
	h.configured(self, func() {
		for i := range uint64(2) {
			h.write(self+0x400+4*i, 4, h.read(ntbInfo+0xc, 2)<<16|requesterValid)
		}
	})
	h.write(h.dbmsg()+0x1018, 8, 0xf<<60) // switchtec_ntb_init_db
	h.write(h.dbmsg()+0x1008, 8, 0xfffffff<<(32*h.peer))
	h.initMessages()
	h.initShared()
	for i := range uint64(64) { // switchtec_ntb_init_db_msg_irq
		h.write(h.dbmsg()+0x1020+i, 1, 1+i/60)
	}
	h.sendMessage(4) // MSG_LINK_FORCE_DOWN
}

// initMessages is switchtec_ntb_init_msgs.
func (h *host) initMessages() {
	var messageMap uint64
	for i := range uint64(4) {
		messageMap |= (i | h.peer<<2) << (8 * i)
	}
	h.write(h.dbmsg()+0x1060, 4, messageMap)
	for i := range uint64(4) {
		h.write(h.dbmsg()+0x1088+8*i, 8, 1<<32|1<<40)
	}
}

// initShared is switchtec_ntb_init_shared_mw.
func (h *host) initShared() {
	h.t.Helper()
	pcimodel.Store(h.at(sharedAt)[:4], magic)
	h.reserve(lutEntries)
}

// reserve is config_rsvd_lut_win, for the page that this side shares.
func (h *host) reserve(luts uint64) {
	h.t.Helper()
	h.configured(h.control(h.peer), func() { h.writeReserve(luts) })
}

func (h *host) writeReserve(luts uint64) {
	ctl := h.control(h.peer)
	h.write(ctl+0x60, 4, h.read(ctl+0x60, 4)&0xff|barLUT|16<<8|(luts-1)<<14)
	h.write(ctl+0x1000, 8, lutValid|h.self<<1|sharedAt)
}

// setDirect is switchtec_ntb_mw_set_direct; a size of 0 is switchtec_ntb_mw_clr_direct.
func (h *host) setDirect(address, size uint64) {
	ctl := h.control(h.peer)
	position := uint64(0)
	for size>>position > 1 {
		position++
	}
	v := h.read(ctl+0x60, 4) &^ barDirect
	if size > 0 {
		v |= barDirect
	}
	h.write(ctl+0x60, 4, v)
	h.write(ctl+0x64, 4, position|size&0xfffff000)
	h.write(ctl+0xc0, 4, size>>32)
	h.write(ctl+0x68, 8, h.self|address)
}

func (h *host) sendMessage(v uint64) { h.write(h.dbmsg()+0x1068, 4, v) }

// message is switchtec_ntb_message_isr.
func (h *host) message() (text uint64, is bool) {
	v := h.read(h.dbmsg()+0x1088, 8)
	if v&(1<<32) == 0 {
		return 0, false
	}
	h.write(h.dbmsg()+0x108c, 1, 1)
	return v & 0xffffffff, true
}

func (h *host) requireMessage(text uint64) {
	h.t.Helper()
	got, is := h.message()
	require.True(h.t, is)
	require.Equal(h.t, text, got)
}

// peerState is what switchtec_ntb_link_status_update reads across.
func (h *host) peerState() uint64 { return h.f.Read(windowBAR, 0, 8) }

// linked returns two hosts whose drivers have brought the link up.
func linked(t *testing.T) (*Pair, *host, *host) {
	t.Helper()
	s, a, b := newHosts(t)
	a.add()
	b.add()
	a.requireMessage(4)
	a.reserve(lutEntries) // switchtec_ntb_reinit_peer
	for _, h := range []*host{a, b} {
		pcimodel.Store(h.at(sharedAt + 4)[:4], 1)
		h.sendMessage(1) // MSG_LINK_UP
	}
	a.requireMessage(1)
	b.requireMessage(1)
	for _, h := range []*host{a, b} {
		require.EqualValues(t, 1<<32|magic, h.peerState())
		require.Equal(t, []int{2}, h.interrupts()[:1])
	}
	require.Empty(t, s.Strangers())
	return s, a, b
}
