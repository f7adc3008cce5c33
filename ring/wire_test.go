package ring

import (
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/wiredoc"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// little returns a little-endian number of up to 8 bytes.
func little(b []byte) (v uint64) {
	for i, c := range b {
		v |= uint64(c) << (8 * i)
	}
	return v
}

func TestAFrameIsLaidOutAsDocumented(t *testing.T) {
	const hop = 0x11223344
	f := frame{
		kind: frameData, hops: 0x0203, src: 0x10000001, dst: 0x20000002, to: 0x30000003, from: 0x40000004,
		epoch: 0x50000005, seq: 0x60000006, ack: 0x70000007, length: 0x80000008, states: 0x90000009,
		arg: 0xa000000a, ask: 0xb000000b,
	}
	want := map[string]uint64{
		"hop number": hop, "kind": uint64(frameData), "version": linkVersion, "hops": 0x0203,
		"source": 0x10000001, "destination": 0x20000002, "to": 0x30000003, "from": 0x40000004,
		"epoch": 0x50000005, "number": 0x60000006, "acknowledgement": 0x70000007, "length": 0x80000008,
		"states": 0x90000009, "argument": 0xa000000a, "ask": 0xb000000b, "zero": 0,
	}
	var slot [frameHeader]byte
	f.encode(&slot)
	binary.LittleEndian.PutUint64(slot[:], f.first(hop))

	at := 0
	for _, row := range wiredoc.Table(t, "Frames", "offset") {
		require.Equal(t, at, row.Number(t, "offset"), "%s: the layout has no gaps", row["name"])
		if row["name"] == "body" {
			continue
		}
		v, ok := want[row["name"]]
		require.True(t, ok, "the code has no field %q", row["name"])
		delete(want, row["name"])
		n := row.Number(t, "bytes")
		require.Equal(t, v, little(slot[at:at+n]), row["name"])
		at += n
	}
	require.Equal(t, frameHeader, at)
	require.Empty(t, slices.Collect(maps.Keys(want)), "fields that are not documented")
}

func TestFramesAreOfTheKindsDocumented(t *testing.T) {
	names := map[string]frameKind{
		"data": frameData, "ack": frameAck, "open": frameOpen, "accept": frameAccept,
		"close": frameClose, "reset": frameReset, "link state": frameLinkState,
	}
	rows := wiredoc.Table(t, "Frames", "uses")
	require.Len(t, rows, len(names))
	for _, row := range rows {
		require.Equal(t, int(names[row["name"]]), row.Number(t, "kind"), row["name"])
	}
}

func TestAnEntryIsLaidOutAsDocumented(t *testing.T) {
	w := entryWord(entryPublish, 0x11223344, 0x556677)
	want := map[string]uint64{"offset": 0x11223344, "length": 0x556677, "kind": uint64(entryPublish)}
	rows := wiredoc.Table(t, "Frames", "bits")
	require.Len(t, rows, len(want))
	for _, row := range rows {
		first, last := row.Bits(t, "bits")
		require.Equal(t, want[row["name"]], w<<(63-last)>>(63-last+first), row["name"])
	}
	kinds := map[string]entryKind{"data": entryData, "store": entryStore, "publish": entryPublish}
	rows = wiredoc.Table(t, "Frames", "stores")
	require.Len(t, rows, len(kinds))
	for _, row := range rows {
		number, name, _ := strings.Cut(row["kind"], " ")
		row["kind"] = number
		require.Equal(t, int(kinds[name]), row.Number(t, "kind"), name)
	}
}

func TestTheWordsOfLanesAreWhereDocumented(t *testing.T) {
	for _, row := range wiredoc.Table(t, "Links with lanes", "offset") {
		base, _, _ := strings.Cut(row["offset"], " + ")
		off, ok := map[string]int{
			"lane credit": laneCredit, "lane data arm": laneDataArm, "lane space arm": laneSpaceArm, "queue of lane i": lanesAt,
		}[row["name"]]
		require.True(t, ok, row["name"])
		row["offset"] = base
		require.Equal(t, off, row.Number(t, "offset"), row["name"])
	}
}

func TestScratchpadsOfLanesAreThoseDocumented(t *testing.T) {
	names := map[string]int{
		"magic": linkMagicSpad, "id": linkIDSpad, "shape": linkShapeSpad, "lanes": linkLanesSpad,
		"frame": linkFrameSpad, "window": linkSizeSpad, "epoch": linkEpochSpad, "seen": linkSeenSpad,
	}
	rows := wiredoc.Table(t, "Links with lanes", "scratchpad")
	require.Len(t, rows, len(names))
	for _, row := range rows {
		number, ok := names[row["name"]]
		require.True(t, ok, row["name"])
		require.Equal(t, number, row.Number(t, "scratchpad"), row["name"])
	}
}

// Each example is decoded to its values, and what it is decoded to is encoded to the example.
func TestFramesAreThoseOfTheExamples(t *testing.T) {
	decode := func(wire []byte) (f frame, hop uint32) {
		slot := ntb.AlignedBytes(round8(len(wire)))
		copy(slot, wire)
		require.True(t, readFrame(slot, ntb.Load64(slot, 0), &f))
		require.Equal(t, len(wire), f.size())
		return f, ntb.Load32(slot, 0)
	}
	encode := func(f frame, hop uint32, body []byte) []byte {
		var slot [frameHeader]byte
		f.encode(&slot)
		binary.LittleEndian.PutUint64(slot[:], f.first(hop))
		return append(slot[:], body...)
	}

	values, wire := wiredoc.Vector(t, "frame")
	f, hop := decode(wire)
	w := little(wire[frameHeader : frameHeader+entryHeader])
	kind, off, n := entryKind(w>>56), int(uint32(w)), int(w>>32&0xffffff)
	word := little(wire[frameHeader+entryHeader : frameHeader+entryHeader+n])
	require.Equal(t, values, fmt.Sprintf("hop=%d kind=%d hops=%d source=%#x destination=%#x to=%d from=%d epoch=%#x number=%d acknowledgement=%d "+
		"length=%d states=%#x argument=%d ask=%d entry: kind=%d offset=%d length=%d word=%d",
		hop, f.kind, f.hops, uint32(f.src), uint32(f.dst), f.to, f.from, f.epoch, f.seq, f.ack, f.length, f.states, f.arg, f.ask,
		kind, off, n, word))
	body := binary.LittleEndian.AppendUint64(nil, entryWord(kind, off, n))
	body = binary.LittleEndian.AppendUint64(body, word)
	require.Equal(t, wire, encode(f, hop, body))
	in := ntb.AlignedBytes(256)
	memory := sinkMemory{in: in, win: ntb.MappedWindow(in, ntb.Cacheable), published: func(int) {}}
	aligned := ntb.AlignedBytes(len(body))
	copy(aligned, wire[frameHeader:])
	require.True(t, memory.apply(aligned))
	require.EqualValues(t, word, ntb.Load32(in, off))

	values, wire = wiredoc.Vector(t, "link-state")
	f, hop = decode(wire)
	copy(aligned, wire[frameHeader:])
	state := &linkState{
		id: f.src, number: f.linkStateNumber(), sides: [2]sideState{sideState(f.states & 3), sideState(f.states >> 8 & 3)},
		links: [2]uint32{f.arg, f.ask}, members: readMembers(f.src.Host(), aligned[:f.length]),
	}
	var members []string
	for _, id := range state.members {
		members = append(members, strconv.Itoa(id.Process()))
	}
	require.Equal(t, values, fmt.Sprintf("hop=%d source=%#x number=%#x left=%d right=%d left-epoch=%#x right-epoch=%#x members=%s",
		hop, uint32(state.id), state.number, state.sides[Left], state.sides[Right], state.links[Left], state.links[Right], strings.Join(members, ",")))
	l := &Link{direction: Right, router: &router{linkStates: map[int]*linkState{f.src.Host(): state}, opts: Options{Topology: Ring}}}
	sent, sentBody, ok := l.advertFrame(f.src.Host())
	require.True(t, ok)
	require.Equal(t, wire, encode(sent, hop, sentBody))
}
