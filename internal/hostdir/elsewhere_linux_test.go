package hostdir

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
)

// Neither a process that ends while it is asked, nor a directory of another mount namespace, has an owner. Nobody is
// told of uid -1.
func TestElsewhereKnowsNoOwner(t *testing.T) {
	gone := filepath.Join(t.TempDir(), "gone")
	assert.Empty(t, perhaps(map[int]bool{ownerOf(gone): true}))
	assert.Equal(t, gone+" (not seen from here)", named(gone))
}
