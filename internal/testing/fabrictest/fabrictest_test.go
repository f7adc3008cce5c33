package fabrictest

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/ntb"
)

func TestAFabricIsTheTestsOwnAndGoneAfterIt(t *testing.T) {
	var path string
	t.Run("inner", func(t *testing.T) {
		name := Name(t)
		require.Equal(t, name, Name(t))
		d, err := hostdir.Open(hostdir.In(hostdir.Find(name), name), true)
		if errors.Is(err, ntb.ErrNotSupported) {
			t.Skip(err)
		}
		require.NoError(t, err)
		t.Cleanup(func() { d.Close() })
		_, err = d.ClaimProcess()
		require.NoError(t, err)
		path = d.Path()
		require.DirExists(t, path)
		t.Run("another", func(t *testing.T) { require.NotEqual(t, name, Name(t)) })
	})
	if path != "" {
		_, err := os.Stat(path)
		require.ErrorIs(t, err, fs.ErrNotExist)
	}
}
