package recorder

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

// verdict is a Reporter that keeps the report.
type verdict struct{ said string }

func (v *verdict) Errorf(format string, args ...any) { v.said += fmt.Sprintf(format, args...) }

// rig is two sides that store by hand.
type rig struct {
	t      *testing.T
	said   *verdict
	rec    *Recorder
	side   [2]ntb.Device
	out    [2]ntb.Window
	frames [2]uint32 // set-up frames sent
	number uint32
	base   int // of the direct link in the windows
	region int
}

const (
	rigWindow = 1 << 20
	// The first queues and control blocks of both endpoints have the same offsets.
	rigSlot  = 3
	rigQueue = 64 << 10
)

func newRig(t *testing.T) *rig {
	r := &rig{t: t, said: &verdict{}, region: (offNotes + 8*64 + 4095) &^ 4095}
	r.rec = New(r.said)
	a, b := r.rec.Pair(ntbmem.Pair(rigWindow))
	r.side = [2]ntb.Device{a, b}
	r.out = [2]ntb.Window{a.Outbound(), b.Outbound()}
	return r
}

// bringUp makes the stores of the bring-up of a direct link.
func (r *rig) bringUp() *rig {
	for x := range 2 {
		r.side[x].SetPeerSpad(1, r.id(x))
		r.side[x].SetPeerSpad(0, directMagic<<16|1)
	}
	return r
}

func (r *rig) id(x int) uint32 { return 0x10001 + uint32(x) }

// send sends a set-up frame of side x.
func (r *rig) send(x int, m []byte) {
	r.frames[x]++
	k := r.frames[x]
	b := make([]byte, 16, setupBytes)
	binary.LittleEndian.PutUint32(b, k)
	binary.LittleEndian.PutUint16(b[4:], uint16(len(m)))
	b[6], b[7] = 1, 1
	binary.LittleEndian.PutUint32(b[8:], r.id(x))
	binary.LittleEndian.PutUint32(b[12:], r.id(1-x))
	b = append(b, m...)
	off := r.base + offSetup + int((k-1)%setupSlots)*setupBytes
	r.out[x].Write(off+8, b[8:])
	r.out[x].Publish64(off, binary.LittleEndian.Uint64(b))
}

func (r *rig) endpoint() hello.Endpoint {
	return hello.Endpoint{Slot: rigSlot, Gen: 7, Offset: rigQueue, Size: minQueue}
}

// open has side 0 send a Hello and side 1 accept it.
func (r *rig) open() *rig {
	r.bringUp()
	r.send(0, (&hello.Hello{Version: hello.Version, From: 9, To: 10, Endpoint: r.endpoint()}).Marshal())
	r.send(1, (&hello.HelloAck{Slot: rigSlot, Gen: 7, Endpoint: r.endpoint()}).Marshal())
	return r
}

func (r *rig) control(x, off int, v uint64) {
	at := r.base + r.region + controlSize*rigSlot + off
	if off < controlData {
		r.out[x].Publish64(at, v)
	} else {
		r.out[x].Publish32(at, uint32(v))
	}
}

// at returns an offset in the first queue of the other side.
func (r *rig) at(off int) int { return r.base + r.region + rigQueue + off }

func (r *rig) header(x, at int, seq uint32, n int, kind uint8) {
	r.out[x].Publish64(r.at(at), uint64(seq)|uint64(n)<<32|uint64(kind)<<56)
}

// record stores an inline record of 8 bytes, in the right order.
func (r *rig) record(x, at int, seq uint32) {
	r.out[x].Store64(r.at(at+64), 0)
	r.out[x].Write(r.at(at+8), make([]byte, 8))
	r.header(x, at, seq, 8, kindInline)
}

// empty stores a record without payload.
func (r *rig) empty(x, at int, seq uint32, kind uint8) {
	r.out[x].Store64(r.at(at+64), 0)
	r.header(x, at, seq, 0, kind)
}

// notify stores a whole notification.
func (r *rig) notify(x int) {
	r.number++
	r.word(x, offNotes+8*rigSlot, r.number)
	r.word(x, offSummary, r.number)
	r.word(x, offMaster, r.number)
}

func (r *rig) word(x, off int, v uint32) { r.out[x].Publish32(r.base+off, v) }

func grantWord(gen, size uint64, off int) uint64 {
	return gen<<40 | size<<32 | uint64(off/minQueue)
}

// What two honest sides store is passed on and not reported.
func TestAnHonestConnectionIsLeftAlone(t *testing.T) {
	r := newRig(t).open()
	r.record(0, 0, 1)
	r.notify(0)
	r.record(0, 64, 2)
	r.control(1, controlData, 1<<3|2)
	r.control(1, controlData, 1<<3)
	r.control(1, controlCredit, 1<<32|128)
	r.control(0, controlSpace, 1<<24|1<<3|2)
	r.control(1, controlGrant, grantWord(2, 12, 128<<10))
	r.notify(1)
	r.empty(0, 128, 3, kindMove)
	r.out[0].Store64(r.region+128<<10+64, 0)
	r.out[0].Publish64(r.region+128<<10, 4|kindFIN<<56)
	r.empty(1, 0, 1, kindFIN)
	r.control(1, controlState, stateFinished)
	r.notify(1)
	r.control(0, controlState, 1|stateFinished|stateStopped)
	r.notify(0)
	r.control(1, controlState, 1|stateFinished|stateStopped)
	// The slot and the memory are granted again.
	for _, s := range r.side {
		clear(s.Inbound()[r.region:])
	}
	r.send(1, (&hello.Hello{Version: hello.Version, From: 9, To: 10, Endpoint: r.endpoint()}).Marshal())
	r.send(0, (&hello.Refuse{Version: hello.Version, Slot: rigSlot, Gen: 7, Reason: hello.NotListening}).Marshal())
	require.Empty(t, r.said.said)
	require.Positive(t, r.rec.Stores())
	require.EqualValues(t, 2, ntb.Load32(r.side[0].Inbound(), offSetup+setupBytes), "what is stored is passed on")
}
