package recorder

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// The rig has one lane, with two slots for bodies of 256 bytes.
const (
	rigSlots = 2
	rigBody  = 256
)

// laneRig returns a rig whose sides are hosts with lanes.
func laneRig(t *testing.T) *rig {
	r := newRig(t)
	for x := range 2 {
		d := r.side[x]
		d.SetPeerSpad(1, r.id(x))
		d.SetPeerSpad(3, rigSlots<<8|1)
		d.SetPeerSpad(4, rigBody)
		d.SetPeerSpad(0, linkMagic<<16|1)
	}
	r.base = 0x2000
	return r
}

// frame puts frame number k of a kind, in a tunnel of epoch 5, into the lane of side 1-x.
func (r *rig) frame(x int, k uint32, kind uint8, seq uint32, body []byte) {
	at := lanesAt + int(k-1)%rigSlots*(frameHeader+rigBody)
	b := make([]byte, frameHeader, frameHeader+rigBody)
	put := binary.LittleEndian.PutUint32
	put(b[8:], r.id(x))
	put(b[12:], 0x70001)
	if x == 1 {
		put(b[8:], 0x70001) // it forwards frames from there
	}
	put(b[24:], 5)
	put(b[28:], seq)
	put(b[36:], uint32(len(body)))
	put(b[44:], 1024)
	r.out[x].Write(at+8, append(b, body...)[8:])
	r.out[x].Publish64(at, uint64(k)|uint64(kind)<<32|laneFormat<<40|3<<48)
}

func entry(kind, off int, v uint64, n int) []byte {
	b := make([]byte, 16)
	binary.LittleEndian.PutUint64(b, uint64(kind)<<56|uint64(n)<<32|uint64(off))
	binary.LittleEndian.PutUint64(b[8:], v)
	return b
}

func TestLanesAreHeldToTheirRules(t *testing.T) {
	for name, f := range map[string]struct {
		flaw func(r *rig)
		want string
	}{
		"honest": {func(r *rig) {
			for k := range uint32(5) {
				r.frame(0, k+1, 2, 0, nil)
				r.out[1].Publish32(0, k+1)
				r.out[1].Publish32(64, k)
				r.out[0].Publish32(128, k)
			}
		}, ""},
		"no credit": {func(r *rig) {
			for k := range uint32(3) {
				r.frame(0, k+1, 2, 0, nil)
			}
		}, "frame 3 of lane 0 with credit for 0"},
		"out of order":         {func(r *rig) { r.frame(0, 2, 2, 0, nil) }, "slot 1 of lane 0 where frame 1 is next"},
		"unknown kind":         {func(r *rig) { r.frame(0, 1, 8, 0, nil) }, "kind 8"},
		"odd body":             {func(r *rig) { r.frame(0, 1, 1, 1, make([]byte, 9)) }, "9 bytes"},
		"before what is in it": {func(r *rig) { r.out[0].Publish64(lanesAt, 1|2<<32|laneFormat<<40) }, "before what is in it"},
		"credit for nothing":   {func(r *rig) { r.out[0].Publish32(0, 1) }, "credit 1 of lane 0"},
		"unused word":          {func(r *rig) { r.out[0].Publish32(192, 1) }, "no word of a lane"},
		"word of 8 bytes":      {func(r *rig) { r.out[0].Publish64(0, 0) }, "no word of a lane"},
		"the direct link":      {func(r *rig) { r.open(); r.word(0, 0x100, 1) }, "unused bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			r := laneRig(t)
			f.flaw(r)
			if f.want == "" {
				require.Empty(t, r.said.said)
			}
			require.Contains(t, r.said.said, f.want)
		})
	}
}

// What a node stores through a tunnel is checked once, where its frames begin. It is not
// checked again when they are sent again or forwarded.
func TestStoresOfATunnelAreHeldToTheRules(t *testing.T) {
	for name, f := range map[string]struct {
		again bool // the second frame has the number of the first
		want  string
	}{
		"sent again":    {true, ""},
		"in its middle": {false, "unused bytes of a link"},
	} {
		t.Run(name, func(t *testing.T) {
			r := laneRig(t)
			r.frame(0, 1, frameOpen, 0, nil)
			// The accept is seen where the other host puts it into a lane, on
			// another bridge.
			accept := make([]byte, frameHeader)
			put := binary.LittleEndian.PutUint32
			put(accept[8:], 0x70001)
			put(accept[12:], r.id(0))
			put(accept[24:], 5)
			put(accept[44:], 1024)
			r.rec.frame(frameAccept, accept)
			r.out[1].Publish32(0, 1)
			r.frame(0, 2, frameData, 1, entry(3, offArm, 1, 4))
			r.out[1].Publish32(0, 2)
			r.frame(1, 1, frameData, 9, entry(3, 0x100, 1, 4)) // frames of others
			seq := uint32(2)
			if f.again {
				seq = 1
			}
			r.frame(0, 3, frameData, seq, entry(3, 0x100, 1, 4))
			if f.want == "" {
				require.Empty(t, r.said.said)
			}
			require.Contains(t, r.said.said, f.want)
		})
	}
}
