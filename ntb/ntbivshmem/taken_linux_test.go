//go:build linux && (amd64 || arm64)

package ntbivshmem

import (
	"fmt"
	"io/fs"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWhatToDoIfADriverHasTheFunction(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EBUSY, syscall.EINVAL} {
		err := taken(fmt.Errorf("enable: %w", errno))
		require.ErrorIs(t, err, errno)
		require.ErrorContains(t, err, `without ",poll"`)
	}
	require.Equal(t, fs.ErrPermission, taken(fs.ErrPermission))
}
