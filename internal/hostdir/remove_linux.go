package hostdir

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Remove removes what directories of those names in base have: a claim file each, a
// board, and themselves. It is no error if there is none. While a process is attached to
// one, nothing of that one is removed, and the error wraps EBUSY; while one has a text on
// a board, nothing is.
//
// Only a process that has made up the names may call it, and knows that no other one
// will come any more: one that attaches at the same time may be alone in a directory
// that cannot be found.
func Remove(base string, names ...string) (err error) {
	for _, name := range names {
		if err := removeBoard(base, name); err != nil {
			return err
		}
	}
	for _, name := range names {
		err = errors.Join(err, removeNamed(base, name))
	}
	return err
}

func removeNamed(base, name string) error {
	d, err := Open(base, name, false)
	if errors.Is(err, fs.ErrNotExist) {
		// Its only process may have ended between making the directory and the file.
		if err := unix.Rmdir(filepath.Join(base, name)); err != nil && err != unix.ENOENT && err != unix.ENOTEMPTY {
			return fmt.Errorf("fabric: remove directory %s: %w", filepath.Join(base, name), err)
		}
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	// A process that is attached holds a lock on some byte.
	if err := d.file.lockAll(); err != nil {
		return fmt.Errorf("fabric: %s: a process is attached: %w", d.path, unix.EBUSY)
	}
	if err := os.Remove(filepath.Join(d.path, claimPrefix+d.id)); err != nil {
		return fmt.Errorf("fabric: %w", err)
	}
	if err := os.Remove(d.path); err != nil {
		return fmt.Errorf("fabric: %w", err)
	}
	return nil
}
