//go:build linux && (amd64 || arm64)

package fabric

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/ntbnet/ntbnet/internal/census"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
)

// The nodes of a fabric share a directory that is given by its path.
func TestNodesShareADirectory(t *testing.T) {
	leak.Check(t)
	path := filepath.Join(t.TempDir(), "lab")
	require.NoError(t, os.Mkdir(path, 0o700))
	var all []*Fabric
	for node := 1; node <= 3; node++ {
		spec, err := spec.Parse(fmt.Sprintf("line:%s?node=%d&nodes=3", path, node))
		require.NoError(t, err)
		f, err := Open(spec, func(*Fabric) {})
		require.NoError(t, err)
		all = append(all, f)
	}
	require.Eventually(t, func() bool {
		top, err := census.ReadTopology(t.Context(), "line:"+path+"?owner=0")
		require.NoError(t, err)
		up := 0
		for _, w := range top.Wires {
			if w.State == status.Up {
				up++
			}
		}
		return len(top.Views) == 3 && up == 2
	}, testTimeout, testTimeout/1000)
	_, err := census.ReadTopology(t.Context(), "line:"+path+"?owner=,")
	require.ErrorContains(t, err, "option owner: want users")
	_, err = census.ReadTopology(t.Context(), "line:"+path+"/none")
	require.ErrorContains(t, err, "no node of line:"+path+"/none runs on this machine")
	for _, f := range all {
		f.Close()
	}
	entries, err := os.ReadDir(path)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	require.Equal(t, []string{"node1-claims-v2", "node2-claims-v2", "node3-claims-v2"}, names)
}
