package bounce

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/wiredoc"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

func TestARecordsHeaderIsLaidOutAsDocumented(t *testing.T) {
	h := uint64(makeHeader(0x11223344, 0x556677, kindBulk.of(1, 2)))
	want := map[string]uint64{"number": 0x11223344, "length": 0x556677, "kind": uint64(kindBulk), "more": 1}
	rows := wiredoc.Table(t, "Records", "bits")
	require.Len(t, rows, len(want))
	for _, row := range rows {
		first, last := row.Bits(t, "bits")
		require.Equal(t, want[row["name"]], h<<(63-last)>>(63-last+first), row["name"])
	}
	kinds := map[string]kind{"inline": kindInline, "bulk": kindBulk, "pad": kindPad, "FIN": kindFIN, "move": kindMove, "sealed": kindSealed}
	rows = wiredoc.Table(t, "Records", "payload at")
	require.Len(t, rows, len(kinds))
	for _, row := range rows {
		require.Equal(t, int(kinds[row["name"]]), row.Number(t, "kind"), row["name"])
	}
}

func TestAControlBlockIsLaidOutAsDocumented(t *testing.T) {
	words := map[string]int{
		"credit": offCredit, "grant": offGrant, "data arm": offDataArm, "space arm": offSpaceArm, "state": offState,
	}
	at := 0
	for _, row := range wiredoc.Table(t, "control block", "offset") {
		require.Equal(t, at, row.Number(t, "offset"), "%s: the layout has no gaps", row["name"])
		at += row.Number(t, "bytes")
		if row["name"] == "zero" {
			continue
		}
		off, ok := words[row["name"]]
		require.True(t, ok, row["name"])
		delete(words, row["name"])
		require.Equal(t, off, row.Number(t, "offset"), row["name"])
	}
	require.Equal(t, controlSize, at)
	require.Empty(t, words, "words that are not documented")

	bits := map[string]int{
		"READ_CLOSED": stateReadClosed, "RESET": stateReset, "STOPPED": stateStopped, "FINISHED": stateFinished,
	}
	rows := wiredoc.Table(t, "Ending", "bit")
	require.Len(t, rows, len(bits))
	for _, row := range rows {
		require.Equal(t, bits[row["name"]], row.Number(t, "bit"), row["name"])
	}
}

// The writer's side stores the examples, and the reader's side takes them.
func TestRecordsAreThoseOfTheExamples(t *testing.T) {
	values, wire := wiredoc.Vector(t, "record")
	payload := wire[headerSize:]
	h := header(binary.LittleEndian.Uint64(wire))
	require.Equal(t, values, fmt.Sprintf("number=%d kind=%d more=%d payload=%q", h.seq(), h.kind(), h>>63, payload))
	require.Equal(t, len(payload), h.len())

	q := newTestQueue(minQueue)
	require.Equal(t, len(payload), q.tx.put(payload, len(payload)))
	require.Equal(t, wire, q.rx.mem[:len(wire)])
	q = newTestQueue(minQueue)
	copy(q.rx.mem, wire)
	got := make([]byte, minQueue)
	n, err := q.rx.get(got)
	require.NoError(t, err)
	require.Equal(t, payload, got[:n])

	values, wire = wiredoc.Vector(t, "sealed")
	h = header(binary.LittleEndian.Uint64(wire))
	q = newQueueOf(ntb.WriteCombining, minQueue)
	q.tx.seq, q.rx.seq = h.seq()-1, h.seq()-1
	copy(q.rx.mem, wire)
	n, err = q.rx.get(got)
	require.NoError(t, err)
	require.Equal(t, values, fmt.Sprintf("number=%d length=%d zeros=%d payload=%q", h.seq(), h.len(), h>>sealedBits&0x7f, got[:n]))
	require.NotZero(t, q.tx.put(got[:n], n))
	require.Equal(t, wire, q.rx.mem[:len(wire)])

	values, wire = wiredoc.Vector(t, "move")
	h = header(binary.LittleEndian.Uint64(wire))
	require.Equal(t, values, fmt.Sprintf("number=%d kind=%d more=%d length=%d", h.seq(), h.kind(), h>>63, h.len()))
	q = newTestQueue(minQueue)
	q.tx.seq, q.rx.seq = h.seq()-1, h.seq()-1
	old := q.rx.mem
	q.tx.move(ntb.MappedWindow(q.grant(minQueue), ntb.Cacheable))
	require.Equal(t, wire, old[:headerSize])
	_, err = q.rx.get(got)
	require.NoError(t, err)
	require.Len(t, q.freed, 1, "the reader has moved")

	values, wire = wiredoc.Vector(t, "grant")
	word := binary.LittleEndian.Uint64(wire)
	off, size := queueOf(word)
	require.Equal(t, values, fmt.Sprintf("generation=%d offset=%d size=%d", word>>40, off, size))
	require.Equal(t, word, grantWord(uint32(word>>40), int(off), int(size)))
}
