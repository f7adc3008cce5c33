package hostdir

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Neither a process that ends while it is asked, nor a directory of another mount namespace, has an owner. Nobody is
// told of uid -1.
func TestElsewhereKnowsNoOwner(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	assert.Empty(t, perhaps(map[int]bool{ownerOf(gone): true}))
	assert.Equal(t, gone+" (not seen from here)", named(gone))
}

// Looks for which there is never enough time go on where the one before has ended, and so come to each process.
func TestLooksElsewhereGoOn(t *testing.T) {
	dir := t.TempDir()
	claims, err := os.Create(filepath.Join(dir, claimName+"1"))
	require.NoError(t, err)
	defer claims.Close()
	cmd := exec.Command("sleep", "600")
	cmd.ExtraFiles = []*os.File{claims}
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	says := Use{dir, fmt.Sprintf("pid %d in %s", cmd.Process.Pid, named(dir))}
	found, looks := 0, 0
	for below := 0; ; looks++ {
		uses, rest := Elsewhere(below, time.Time{})
		if slices.Contains(uses, says) {
			found++
		}
		if below = rest; below == 0 {
			break
		}
	}
	assert.Equal(t, 1, found)
	assert.Greater(t, looks, 1)
	uses, rest := Elsewhere(0, time.Now().Add(time.Hour))
	assert.Contains(t, uses, says)
	assert.Zero(t, rest)
}
