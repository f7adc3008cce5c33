package hostdir

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"golang.org/x/sys/unix"
)

// Remove removes what fabrics have left in places of In: the claim file, the sockets of
// processes that were killed, marks of ports, and the directory. It is no error if there is none.
// While a process is attached to one, nothing of that one is removed, and the error wraps
// EBUSY.
//
// A process that attaches at the same time finds out, when it claims a number, that the
// directory was removed.
func Remove(places ...Place) (err error) {
	for _, p := range places {
		err = errors.Join(err, p.remove())
	}
	return err
}

func (p Place) remove() error {
	place, err := p.open(false)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer place.close()
	names, err := place.names()
	if err != nil {
		return err
	}
	var claims []string
	for _, name := range names {
		if p.claimVersion(name) != 0 {
			claims = append(claims, name)
		}
	}
	for _, name := range claims {
		fd, err := place.openFile(name, false)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		// A process that is attached holds a lock on some byte.
		if err := lockBytes(fd, unix.F_WRLCK, 0, 0); err != nil {
			return fmt.Errorf("fabric: %s: a process is attached: %w", p.path, unix.EBUSY)
		}
		// Who has removed this file does not know who is attached to the next one of its name.
		if err := hasName(fd, p.path); err != nil {
			return err
		}
	}
	for _, name := range names {
		if p.cableOf(name) == 0 && p.claimVersion(name) == 0 && !strings.HasPrefix(name, temporaryPrefix) && !strings.HasPrefix(name, markPrefix) {
			continue
		}
		if err := unix.Unlinkat(place.fd(), name, 0); err != nil && err != unix.ENOENT {
			return fmt.Errorf("fabric: remove %s/%s: %w", p.path, name, err)
		}
	}
	if err := unix.Rmdir(p.path); err != nil && err != unix.ENOENT {
		return fmt.Errorf("fabric: remove directory %s: %w", p.path, err)
	}
	return nil
}

// hasName returns an error that wraps ESTALE if the file fd in a directory was removed since it
// was opened.
func hasName(fd int, path string) error {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("fabric: %s: %w", path, err)
	}
	if st.Nlink == 0 {
		return fmt.Errorf("fabric: %s was removed just now: try again: %w", path, unix.ESTALE)
	}
	return nil
}
