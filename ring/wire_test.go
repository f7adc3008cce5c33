package ring

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/testing/wiredoc"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

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
	decode := func(wire []byte) (f frame.Header, hop uint32) {
		slot := ntb.AlignedBytes(frame.Round8(len(wire)))
		copy(slot, wire)
		require.True(t, frame.Read(slot, ntb.Load64(slot, 0), &f))
		require.Equal(t, len(wire), f.Size())
		return f, ntb.Load32(slot, 0)
	}
	encode := func(f frame.Header, hop uint32, body []byte) []byte {
		var slot [frame.HeaderBytes]byte
		f.Encode(&slot)
		binary.LittleEndian.PutUint64(slot[:], f.First(hop))
		return append(slot[:], body...)
	}

	values, wire := wiredoc.Vector(t, "frame")
	f, hop := decode(wire)
	w := wiredoc.Little(wire[frame.HeaderBytes : frame.HeaderBytes+8])
	kind, off, n := w>>56, int(uint32(w)), int(w>>32&0xffffff)
	word := wiredoc.Little(wire[frame.HeaderBytes+8 : frame.HeaderBytes+8+n])
	require.Equal(t, values, fmt.Sprintf("hop=%d kind=%d hops=%d source=%#x destination=%#x to=%d from=%d epoch=%#x number=%d acknowledgement=%d "+
		"length=%d states=%#x argument=%d ask=%d entry: kind=%d offset=%d length=%d word=%d",
		hop, f.Kind, f.Hops, uint32(f.Src), uint32(f.Dst), f.To, f.From, f.Epoch, f.Seq, f.Ack, f.Length, f.States, f.Arg, f.Ask,
		kind, off, n, word))
	require.Equal(t, wire, encode(f, hop, wire[frame.HeaderBytes:]))

	values, wire = wiredoc.Vector(t, "link-state")
	f, hop = decode(wire)
	aligned := ntb.AlignedBytes(frame.Round8(len(wire) - frame.HeaderBytes))
	copy(aligned, wire[frame.HeaderBytes:])
	state := &linkState{
		id: f.Src, number: f.LinkStateNumber(), sides: [2]sideState{sideState(f.States & 3), sideState(f.States >> 8 & 3)},
		links: [2]uint32{f.Arg, f.Ask}, members: readMembers(f.Src.Host(), aligned[:f.Length]),
	}
	var members []string
	for _, id := range state.members {
		members = append(members, strconv.Itoa(id.Process()))
	}
	require.Equal(t, values, fmt.Sprintf("hop=%d source=%#x number=%#x left=%d right=%d left-epoch=%#x right-epoch=%#x members=%s",
		hop, uint32(state.id), state.number, state.sides[Left], state.sides[Right], state.links[Left], state.links[Right], strings.Join(members, ",")))
	l := &Link{direction: Right, router: &router{linkStates: map[int]*linkState{f.Src.Host(): state}, opts: Options{Topology: Ring}}}
	sent, sentBody, ok := l.advertFrame(f.Src.Host())
	require.True(t, ok)
	require.Equal(t, wire, encode(sent, hop, sentBody))
}
