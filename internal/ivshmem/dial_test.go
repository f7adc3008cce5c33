//go:build linux

package ivshmem

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A socket that this user may not use is not taken for one without a server.
func TestDialOfASocketThatIsForOthers(t *testing.T) {
	denied := &net.OpError{Op: "dial", Net: "unix", Err: os.NewSyscallError("connect", syscall.EACCES)}
	require.ErrorContains(t, dialError(denied), "--mode and --group")
	require.ErrorIs(t, dialError(denied), syscall.EACCES)
	_, err := Dial(t.Context(), filepath.Join(t.TempDir(), "none"))
	require.ErrorContains(t, err, "no server (ntb-ivshmem-server starts one)")
}
