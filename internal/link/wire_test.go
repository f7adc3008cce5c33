package link

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/wiredoc"
	"github.com/ntbnet/ntbnet/ntb/ntbmem"
	"github.com/stretchr/testify/require"
)

func TestTheWindowIsLaidOutAsDocumented(t *testing.T) {
	names := map[string]int{
		"master word": offMaster, "set-up credit": offSetupCredit, "set-up blocked": offSetupBlocked,
		"link arm": offArm, "summary words": offSummary, "set-up queue": offSetup, "notification words": offNotes,
	}
	rows := wiredoc.Table(t, "The window", "offset")
	require.Len(t, rows, len(names)+1)
	for _, row := range rows {
		if row["name"] == "region" {
			continue
		}
		off, ok := names[row["name"]]
		require.True(t, ok, row["name"])
		require.Equal(t, off, row.Number(t, "offset"), row["name"])
	}
}

func TestScratchpadsAreThoseDocumented(t *testing.T) {
	names := map[string]int{"magic": spadMagic, "id": spadID, "window": spadWindow, "epoch": spadEpoch, "seen": spadSeen}
	rows := wiredoc.Table(t, "Bring-up", "scratchpad")
	require.Len(t, rows, len(names))
	for _, row := range rows {
		number, ok := names[row["name"]]
		require.True(t, ok, row["name"])
		require.Equal(t, number, row.Number(t, "scratchpad"), row["name"])
	}
}

// One side's message is stored as in the example, and the other one takes it from there.
func TestAMessageIsThatOfTheExample(t *testing.T) {
	a, b := ntbmem.Pair(1 << 20)
	from, to := newEcho(), newEcho()
	pa, pb := join(t, a, b, from, to)
	values, wire := wiredoc.Vector(t, "message")
	payload := wire[setupHeader:]
	require.Equal(t, values, fmt.Sprintf("number=%d service=%d source=%#x destination=%#x payload=%q",
		binary.LittleEndian.Uint32(wire), ServiceSDP, uint32(pa.node.id), uint32(pb.node.id), payload))
	require.NoError(t, pa.Send(ServiceSDP, payload))
	to.wait(t, func() bool { return len(to.messages) == 1 })
	require.Equal(t, payload, to.messages[0])
	require.Equal(t, wire, pb.in[offSetup:offSetup+len(wire)])

	// The other way round the bytes are stored, and the message comes of them.
	a, b = ntbmem.Pair(1 << 20)
	to = newEcho()
	pa, _ = join(t, a, b, newEcho(), to)
	pa.out.Write(offSetup+8, wire[8:])
	pa.out.Publish64(offSetup, binary.LittleEndian.Uint64(wire))
	pa.announce()
	to.wait(t, func() bool { return len(to.messages) == 1 })
	require.Equal(t, payload, to.messages[0])
}
