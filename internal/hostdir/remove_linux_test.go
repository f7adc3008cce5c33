package hostdir

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/leak"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRemoveLeavesNothingOfAFabric(t *testing.T) {
	leak.Check(t)
	base := filepath.Join(t.TempDir(), "base")
	for _, name := range []string{"mine", "mine@1", "mine@16", "other", "mine2"} {
		d, err := Open(base, name, true)
		require.NoError(t, err)
		require.NoError(t, d.Close())
	}
	require.NoError(t, Remove(base, "mine", "mine@1", "mine@2", "mine@16"))
	require.NoError(t, Remove(base, "mine", "mine@1", "mine@2", "mine@16"), "nothing is left to remove")
	entries, err := os.ReadDir(base)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	assert.Equal(t, []string{"mine2", "other"}, names)
}

func TestRemoveLeavesAFabricThatIsInUse(t *testing.T) {
	leak.Check(t)
	base := filepath.Join(t.TempDir(), "base")
	d, err := Open(base, "mine", true)
	require.NoError(t, err)
	_, err = d.ClaimProcess()
	require.NoError(t, err)
	assert.ErrorIs(t, Remove(base, "mine", "mine@1", "mine@2", "mine@16"), syscall.EBUSY)
	again, err := Open(base, "mine", true)
	require.NoError(t, err)
	assert.Equal(t, d.ID(), again.ID())
	require.NoError(t, again.Close())
	require.NoError(t, d.Close())
	assert.NoError(t, Remove(base, "mine", "mine@1", "mine@2", "mine@16"))
}

// A process that ends in the middle of making a fabric leaves a directory without a file.
func TestRemoveTakesAFabricThatWasOnlyBegun(t *testing.T) {
	base := filepath.Join(t.TempDir(), "base")
	place, err := openPlace(base, "mine", true)
	require.NoError(t, err)
	require.NoError(t, place.Close())
	require.NoError(t, Remove(base, "mine", "mine@1", "mine@2", "mine@16"))
	entries, err := os.ReadDir(base)
	require.NoError(t, err)
	require.Empty(t, entries)
}
