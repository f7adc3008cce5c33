//go:build unix

package launch

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// writePipe writes to fd if that is a pipe. It is another file if what started this process has
// not handed the pipe on.
func writePipe(fd int, b []byte) {
	var st unix.Stat_t
	if unix.Fstat(fd, &st) == nil && st.Mode&unix.S_IFMT == unix.S_IFIFO {
		_, _ = unix.Write(fd, b) // nobody reads after the end of shmemrun
	}
}

// takeSocket makes a file of fd, which the launcher has left open for this process.
// Children do not inherit it. A program that a PE has started sees PMI_FD too, but
// there the number is another file, or none.
func takeSocket(fd int) (*os.File, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, fmt.Errorf("not open in this process, which the launcher did not start itself: %w", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, errors.New("no socket, so not the launcher's: it did not start this process itself")
	}
	unix.CloseOnExec(fd)
	// A deadline ends a read only if the file is non-blocking.
	if err := unix.SetNonblock(fd, true); err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "PMI_FD"), nil
}
