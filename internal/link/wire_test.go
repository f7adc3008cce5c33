package link

import (
	"testing"

	"github.com/ntbnet/ntbnet/internal/wiredoc"
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
