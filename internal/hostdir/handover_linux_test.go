package hostdir

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// nobodyElse is the holder of a port of which the caller knows none.
const nobodyElse = -1

func TestAPortIsHandedOverForATime(t *testing.T) {
	base := newBase(t)
	d, _ := openMember(t, base)
	other, _ := openMember(t, base)
	_, err := d.ClaimPort(7)
	require.NoError(t, err)
	other.Handover(7) // it is not the other's
	require.False(t, other.HandedOver(7, nobodyElse))
	_, err = other.ClaimPort(7)
	require.Error(t, err)

	begun := time.Now()
	d.Handover(7)
	require.True(t, other.HandedOver(7, nobodyElse) || time.Since(begun) >= HandoverTime)
	require.False(t, other.HandedOver(8, nobodyElse))
	_, err = other.ClaimPort(7)
	require.NoError(t, err)
	other.Handover(7)
	for begun = time.Now(); other.HandedOver(7, nobodyElse); time.Sleep(10 * time.Millisecond) {
		require.Less(t, time.Since(begun), time.Minute, "it is handed over for ever")
	}
	marks := func() []string {
		all, err := filepath.Glob(filepath.Join(base, "default", markPrefix+"*"))
		require.NoError(t, err)
		return all
	}
	require.Len(t, marks(), 1)
	third, _ := openMember(t, base)
	require.Empty(t, marks(), "it is removed by a process that comes later")
	_, err = third.ClaimPort(8)
	require.NoError(t, err)
	third.Handover(8)
	for _, dir := range []*Dir{d, other, third} {
		require.NoError(t, dir.Close())
	}
	require.NoError(t, Remove(In(base, "default")), "with the mark")
	_, err = os.Stat(filepath.Join(base, "default"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A member's marks hold up nobody else's ports.
func TestAMarkCountsOfTheHolderAlone(t *testing.T) {
	path := shared(t, shopGID)
	exe, _ := asNobody(t)
	d, err := Open(At(path, 0, ""), true)
	require.NoError(t, err)
	defer d.Close()
	_, err = d.ClaimProcess()
	require.NoError(t, err)
	for range 100 { // this process may be slow
		begun := time.Now()
		p := start(t, exe, "mark", path, as(userA, shopGID))
		require.Equal(t, "marked", p.line(t))
		require.False(t, d.HandedOver(7, nobodyElse))
		require.False(t, d.HandedOver(7, userB))
		if d.HandedOver(7, userA) {
			return
		}
		require.GreaterOrEqual(t, time.Since(begun), HandoverTime, "the mark does not count")
	}
	t.Error("no mark of the holder counts")
}
