package switchtec

import (
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/pcimodel"
	"github.com/stretchr/testify/require"
)

func TestDriversBringTheLinkUp(t *testing.T) {
	_, a, b := linked(t)
	a.f.Write(windowBAR, 0x818, 4, 0xabcd) // a scratchpad of the peer's (switchtec_ntb_peer_spad_write)
	require.EqualValues(t, 0xabcd, pcimodel.Load(b.at(sharedAt + 0x818)[:4]))
	for _, p := range []uint64{0, 1} { // switchtec_ntb_part_link_speed
		port := a.read(partConfig+partConfigSize*p+0x14, 4) & 0xff
		require.EqualValues(t, 16<<4|4, a.read(portCSR+portCSRSize*port+0x74, 4)>>16)
	}
}

func TestTheHeaderPlacesTheTableOfEachPartition(t *testing.T) {
	s := New()
	for i, at := range []uint32{0x76000, 0x7a000} {
		h := s.Functions()[i].Header()
		require.Equal(t, pcimodel.MSIX{Vectors: 4, BAR: 0, Table: at, Pending: at + 0x1000}, h.MSIX)
	}
}

func TestTheDirectWindowLeadsWhereThePeerSays(t *testing.T) {
	s, a, b := linked(t)
	before := s.Counts()[0]
	a.f.Write(windowBAR, directAt, 8, 1)
	require.Equal(t, pcimodel.Ones(8), a.f.Read(windowBAR, directAt, 8))
	require.EqualValues(t, 2, s.Counts()[0].Sub(before).Lost)

	b.configured(b.control(0), func() { b.setDirect(bufferAt, 0x100000) })
	for _, size := range []int{1, 2, 4, 8} {
		offset := uint64(0xfff00 + 8*size)
		a.f.Write(windowBAR, directAt+offset, size, 0x1122334455667788)
		want := 0x1122334455667788 & pcimodel.Ones(size)
		require.Equal(t, want, pcimodel.Load(b.at(bufferAt + offset)[:size]))
		require.Equal(t, want, a.f.Read(windowBAR, directAt+offset, size))
	}
	require.Equal(t, pcimodel.Counts{Stores: 4, Bytes: 15, Loads: 4, Lost: 2}, s.Counts()[0].Sub(before))
	a.f.Write(windowBAR, 0x818, 4, 1)
	require.Equal(t, [2]uint64{4, 0}, s.DirectStores(), "without scratchpads")
	a.f.Write(windowBAR, directAt+0x100000, 8, 1)
	require.Zero(t, pcimodel.Load(b.at(bufferAt + 0x100000)[:8]), "beyond its end")
	require.Equal(t, pcimodel.Ones(4), b.f.Read(windowBAR, directAt, 4), "the other direction is apart")

	b.configured(b.control(0), func() { b.setDirect(bufferAt+0x2000, 0x3000) })
	a.f.Write(windowBAR, directAt+0x2008, 8, 9)
	require.EqualValues(t, 9, pcimodel.Load(b.at(bufferAt + 0x2008)[:8]), "upper bits are replaced, not added")

	b.configured(b.control(0), func() { b.setDirect(0, 0) })
	require.Equal(t, pcimodel.Ones(4), a.f.Read(windowBAR, directAt, 4))
	require.EqualValues(t, 1<<32|magic, a.peerState())
}

func TestEachWindowOfTheTableHasAnEntry(t *testing.T) {
	_, a, b := linked(t)
	set := func(i int, v uint64) {
		b.configured(b.control(0), func() { b.write(b.control(0)+0x1000+8*uint64(i), 8, v) })
	}
	set(63, lutValid|1<<1|bufferAt)
	a.f.Write(windowBAR, 63*lutSize+0xfff8, 8, 5)
	require.EqualValues(t, 5, pcimodel.Load(b.at(bufferAt + 0xfff8)[:8]))
	for name, v := range map[string]uint64{"not valid": 1<<1 | bufferAt, "to itself": lutValid | bufferAt, "no such partition": lutValid | 2<<1 | bufferAt,
		"no RAM": lutValid | 1<<1} {
		set(63, v)
		require.Equal(t, pcimodel.Ones(8), a.f.Read(windowBAR, 63*lutSize+0xfff8, 8), name)
	}
}

func TestWindowsAreForRequestersInTheTable(t *testing.T) {
	_, a, _ := linked(t)
	ctl := a.control(0)
	require.EqualValues(t, 1<<1|requesterValid, a.read(ctl+0x404, 4), "an entry has a proxy's number")
	a.configured(ctl, func() {
		a.write(ctl+0x400, 4, 0x0100<<16|requesterValid)
		a.write(ctl+0x404, 4, 0)
	})
	require.Equal(t, pcimodel.Ones(8), a.peerState())
}

func TestControlBlocksAreChangedBetweenLockAndConfiguration(t *testing.T) {
	const entry = 0x1008
	_, a, b := linked(t)
	ctl := a.control(0)
	read := func() uint64 { return a.f.Read(windowBAR, lutSize, 4) }

	b.write(ctl+entry, 8, lutValid|1<<1|bufferAt)
	require.Zero(t, b.read(ctl+entry, 8), "not locked")
	require.EqualValues(t, statusNormal, b.partOp(ctl, opCfg))
	require.EqualValues(t, statusLocked, b.partOp(ctl, opLock))
	b.write(ctl+entry, 8, lutValid|1<<1|bufferAt)
	require.Equal(t, pcimodel.Ones(4), read(), "not configured")
	require.EqualValues(t, statusNormal, b.partOp(ctl, opReset))
	require.Zero(t, b.read(ctl+entry, 8), "given up")
	b.configured(ctl, func() { b.write(ctl+entry, 8, lutValid|1<<1|bufferAt) })
	require.Zero(t, read())
}

// Both drivers lock the first control block while they start. What a side sees there makes it fail, where it is not the
// state that it waits for.
func TestBothSidesLockAtOnce(t *testing.T) {
	_, a, b := newHosts(t)
	ctl := a.control(0)

	// The second is late by less than the first's sleep: it sees that it is not locked, and has
	// switchtec_ntb_add fail with EIO.
	seen := a.partOp(ctl, opLock, func() { b.write(ctl+partitionOp, 4, opLock) })
	require.EqualValues(t, statusLocked, seen)
	require.EqualValues(t, statusNormal, a.partOp(ctl, opCfg))
	require.EqualValues(t, statusNormal, b.read(ctl+partitionStatus, 4))

	// It locks while the first waits for its configuration: the first sees that, and prints "Error setting up the
	// requester ID table: 00000000" (config_req_id_table).
	require.EqualValues(t, statusLocked, a.partOp(ctl, opLock))
	a.write(ctl+0x400, 4, requesterValid)
	seen = a.partOp(ctl, opCfg, func() { b.write(ctl+partitionOp, 4, opLock) })
	require.EqualValues(t, statusLocked, seen)
	require.Zero(t, a.read(ctl+0x20, 4))
	b.writeReserve(lutEntries)
	require.EqualValues(t, statusNormal, b.partOp(ctl, opCfg))
	pcimodel.Store(b.at(sharedAt)[:4], magic)
	require.EqualValues(t, magic, a.peerState(), "both changes hold")
}

func TestWindowsThatExceedTheBARAreAnError(t *testing.T) {
	_, a, b := linked(t)
	ctl := b.control(0)
	require.EqualValues(t, statusLocked, b.partOp(ctl, opLock))
	b.writeReserve(256)
	require.EqualValues(t, statusLocked, b.partOp(ctl, opCfg))
	require.EqualValues(t, 0x00030002, b.read(ctl+0x10, 4))
	require.EqualValues(t, 1<<32|magic, a.peerState())
	b.writeReserve(lutEntries)
	require.EqualValues(t, statusNormal, b.partOp(ctl, opCfg), "it is still locked")
	require.Zero(t, b.read(ctl+0x10, 4))
}

func TestDoorbellsRaiseTheirVector(t *testing.T) {
	s, a, b := linked(t)
	before := s.Counts()[0]
	ring := func(bits uint64) { a.write(a.dbmsg()+0x1000, 8, bits<<32) } // switchtec_ntb_peer_db_set
	read := func(h *host) uint64 { return h.read(h.dbmsg()+0x1010, 8) >> (32 * h.self) & 0xfffffff }
	mask := func(bits uint64) { b.write(b.dbmsg()+0x1018, 8, ^(0x0fffffff_ffffffff &^ (bits << 32))) }
	a.interrupts()
	b.interrupts()

	ring(1 << 3)
	require.Empty(t, b.interrupts(), "masked")
	require.EqualValues(t, 1<<3, read(b))
	require.Zero(t, read(a))
	mask(1<<3 | 1<<27)
	require.Equal(t, []int{1}, b.interrupts(), "pending when it is unmasked")
	ring(1 << 3)
	require.Empty(t, b.interrupts(), "not cleared yet")
	b.write(b.dbmsg()+0x1010, 8, 1<<3<<32) // switchtec_ntb_db_clear
	require.Zero(t, read(b))
	ring(1<<3 | 1<<27)
	require.Equal(t, []int{1}, b.interrupts(), "one vector for both")
	ring(1 << 28)
	require.EqualValues(t, 1<<3|1<<27, read(b), "not let out")
	require.Empty(t, a.interrupts())

	counts := s.Counts()[0].Sub(before)
	require.Zero(t, counts.RegisterWrites)
	require.Equal(t, [64]uint64{32 + 3: 3, 32 + 27: 1}, counts.Doorbells)
}

func TestAMessageIsKeptUntilItIsCleared(t *testing.T) {
	_, a, b := linked(t)
	b.interrupts()
	a.sendMessage(7)
	a.sendMessage(8)
	require.Equal(t, []int{2}, b.interrupts())
	b.requireMessage(7)
	_, is := b.message()
	require.False(t, is)
	b.write(b.dbmsg()+0x1018, 8, 0)
	a.sendMessage(9)
	require.Empty(t, b.interrupts())
	b.write(b.dbmsg()+0x1018, 8, 0xf<<60)
	require.Equal(t, []int{2}, b.interrupts())
	b.requireMessage(9)
}

func TestNothingPassesACut(t *testing.T) {
	s, a, b := linked(t)
	b.configured(b.control(0), func() { b.setDirect(bufferAt, 0x1000) })
	count := func(h *host) uint64 { return h.read(portCSR+0xd30, 4) >> 5 & 0xff }
	require.Zero(t, count(a))
	a.interrupts()
	b.interrupts()

	s.Cut()
	s.Cut()
	require.Contains(t, a.interrupts(), eventVector)
	require.Contains(t, b.interrupts(), eventVector)
	require.EqualValues(t, 1, count(a))
	before := s.Counts()[0]
	a.f.Write(windowBAR, directAt, 8, 1)
	require.Zero(t, pcimodel.Load(b.at(bufferAt)[:8]))
	require.Equal(t, pcimodel.Ones(8), a.peerState())
	a.write(a.dbmsg()+0x1000, 8, 1<<32)
	a.sendMessage(3)
	require.Zero(t, b.read(b.dbmsg()+0x1010, 8))
	_, is := b.message()
	require.False(t, is)
	require.EqualValues(t, 3, s.Counts()[0].Sub(before).Lost)

	s.Mend()
	require.Contains(t, a.interrupts(), eventVector)
	require.EqualValues(t, 2, count(b))
	require.EqualValues(t, 1<<32|magic, a.peerState())
	a.f.Write(windowBAR, directAt, 8, 1)
	require.EqualValues(t, 1, pcimodel.Load(b.at(bufferAt)[:8]))
}

// "The LUT settings for shared MW of peer is reset after reboot" (github.com/Microsemi/switchtec-kernel, pull request 53),
// and the other direction waits for the machine to master the bus again.
func TestAResetTakesWhatThePeerHasWritten(t *testing.T) {
	_, a, b := linked(t)
	a.interrupts()
	b.absent = true
	b.f.Reset()
	require.Contains(t, a.interrupts(), eventVector)
	require.Equal(t, pcimodel.Ones(8), a.peerState())
	require.Equal(t, pcimodel.Ones(8), b.peerState())
	require.Zero(t, b.read(b.dbmsg()+0x1018, 8))

	b.absent = false
	require.EqualValues(t, 1<<32|magic, a.peerState())
	b.add()
	require.Equal(t, pcimodel.Ones(8), b.peerState())
	a.requireMessage(4)
	a.reserve(lutEntries)
	require.EqualValues(t, 1<<32|magic, b.peerState())
}

func TestEventsAreClearedAndEnabled(t *testing.T) {
	s, a, b := newHosts(t)
	const header = portCSR + 0xd30
	s.Cut()
	require.Empty(t, a.interrupts(), "not enabled")
	require.EqualValues(t, 1<<5|eventOccurred, a.read(header, 4))
	a.write(header, 4, eventOccurred|eventInterrupt)
	require.EqualValues(t, 1<<5|eventInterrupt, b.read(header, 4))
	for range 255 {
		s.Mend()
		s.Cut()
	}
	require.EqualValues(t, (1+2*255)&0xff, a.read(header, 4)>>5)
}

func TestASideMayHearOfNoEvent(t *testing.T) {
	s, a, b := linked(t)
	a.interrupts()
	s.Deafen(0, true)
	b.f.Reset()
	require.Empty(t, a.interrupts())
	s.Deafen(0, false)
	require.Equal(t, []int{eventVector}, a.interrupts())
}

func TestStrangersAreRegistersThatAreNotThere(t *testing.T) {
	s, a, _ := newHosts(t)
	require.Zero(t, a.read(0x1000, 4))
	a.write(0x1004, 8, 1)
	require.Equal(t, []uint64{0x1000, 0x1004, 0x1008}, s.Strangers())
}
