package hostdir

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestRemoveLeavesNothingOfAFabric(t *testing.T) {
	leak.Check(t)
	base := filepath.Join(t.TempDir(), "base")
	for _, name := range []string{"mine", "mine@1", "mine@16", "other", "mine2"} {
		d, err := Open(In(base, name), true)
		require.NoError(t, err)
		require.NoError(t, d.Close())
	}
	require.NoError(t, Remove(inAll(base)...))
	require.NoError(t, Remove(inAll(base)...), "nothing is left to remove")
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
	d, err := Open(In(base, "mine"), true)
	require.NoError(t, err)
	_, err = d.ClaimProcess()
	require.NoError(t, err)
	assert.ErrorIs(t, Remove(inAll(base)...), syscall.EBUSY)
	again, err := Open(In(base, "mine"), true)
	require.NoError(t, err)
	assert.Equal(t, identity(t, d), identity(t, again))
	require.NoError(t, again.Close())
	require.NoError(t, d.Close())
	assert.NoError(t, Remove(inAll(base)...))
}

// A process that ends in the middle of making a fabric leaves a directory without a file.
func TestRemoveTakesAFabricThatWasOnlyBegun(t *testing.T) {
	base := filepath.Join(t.TempDir(), "base")
	place, err := In(base, "mine").open(true)
	require.NoError(t, err)
	place.close()
	require.NoError(t, Remove(inAll(base)...))
	entries, err := os.ReadDir(base)
	require.NoError(t, err)
	require.Empty(t, entries)
}
