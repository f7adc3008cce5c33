package fabric

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Remove removes what this user's fabric of that name has left in the file system: a directory
// with an empty file, or one for each host, and its board. If there is none, that is no error.
// While a process is attached, nothing of its host is removed and the error wraps EBUSY.
//
// Only the process that has made up the name may call it, when no other process will attach any
// more. A process that attached at the same time could be alone in a fabric that no other
// process can find.
func Remove(name string) error {
	if err := checkName(name); err != nil {
		return err
	}
	return removeAt(baseDir("/run/user", "/tmp", os.Geteuid()), name)
}

func removeAt(base, name string) error {
	if err := removeBoard(base, name); err != nil {
		return err
	}
	err := removeNamed(base, name)
	for node := 1; node <= maxNodes; node++ {
		err = errors.Join(err, removeNamed(base, name+"@"+strconv.Itoa(node)))
	}
	return err
}

func removeNamed(base, name string) error {
	d, err := openNamed(base, name, false)
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
	if err := lockBytes(d.claims, unix.F_WRLCK, 0, 0); err != nil {
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
