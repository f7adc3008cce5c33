//go:build !(lockcheck && (amd64 || arm64))

package lock

import (
	"sync"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Without the tag a Mutex is no more than a sync.Mutex.
func TestWithoutTheTagItCostsNothing(t *testing.T) {
	var mu Mutex[Pool]
	require.Equal(t, unsafe.Sizeof(sync.Mutex{}), unsafe.Sizeof(mu))
	require.Zero(t, testing.AllocsPerRun(100, func() { mu.Lock(); Device(); mu.Lend(); mu.Unlock() }))
	require.False(t, Checked)
}
