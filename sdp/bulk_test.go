package sdp

import (
	"bytes"
	"io"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// A stream over shared memory tries both kinds of stores, counts those by non-temporal ones, and
// arrives as it was written.
func TestAStreamTriesBothKindsOfStores(t *testing.T) {
	f, err := Open("shm:" + fabrictest.Name(t))
	require.NoError(t, err)
	defer f.Close()
	a, b := mustPipe(t, f)
	defer a.Close()
	defer b.Close()
	data := make([]byte, 16<<20)
	for i := range data {
		data[i] = byte(i>>16 ^ i>>8 ^ i)
	}
	sent := make(chan error, 1)
	go func() {
		for p := data; len(p) > 0; p = p[64<<10:] {
			if _, err := a.Write(p[:64<<10]); err != nil {
				sent <- err
				return
			}
		}
		sent <- a.CloseWrite()
	}()
	got, err := io.ReadAll(b)
	require.NoError(t, err)
	require.NoError(t, <-sent)
	require.True(t, bytes.Equal(data, got))
	s := a.Stats()
	require.Positive(t, s.MMIORecords)
	w := ntb.MappedWindow(data, ntb.Cacheable)
	require.Equal(t, w.Streams(), s.MMIOStreamed > 0)
	require.LessOrEqual(t, s.MMIOStreamed, s.MMIORecords)
}
