//go:build linux && (amd64 || arm64)

package ntbshm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Check returns an error if this process cannot make an end of a bridge now. The error wraps
// errors.ErrUnsupported or ntb.ErrNotSupported if the system does not allow it at all.
func Check() error {
	f, waits, err := makeFiles(Options{Window: pageSize, Doorbells: 1})
	f.close()
	waits.close()
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) { // as filters of system calls have it
		err = fmt.Errorf("%w: this system gives this process no memory to share: allow memfd_create: %w", err, errors.ErrUnsupported)
	}
	return err
}
