package heapmem

import (
	"os"
	"testing"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/stretchr/testify/require"
)

// Who asks is what the kernel says, not the process.
func TestAFileIsForProcessesOfTheSameUser(t *testing.T) {
	f, err := os.Open(os.DevNull)
	require.NoError(t, err)
	defer f.Close()
	lent.Store(uint64(7), f)
	defer lent.Delete(uint64(7))
	own := hostdir.Self()
	got, err := Lent(7, own)
	require.NoError(t, err)
	require.Same(t, f, got)
	_, err = Lent(8, own)
	require.Equal(t, ErrNoFile, err)
	for _, uid := range []int{own.UID + 1, -1} {
		_, err = Lent(7, hostdir.Peer{UID: uid})
		require.Equal(t, errNotYours, err)
	}
}
