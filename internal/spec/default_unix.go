//go:build unix

package spec

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"
)

// readOwned returns what is in a regular file that its owner alone can write, "" if there is none. The error says what
// is wrong with the file, without its path.
func readOwned(path string, owner int) (string, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0) // a pipe would wait for a writer
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case errors.Is(err, syscall.ELOOP):
		return "", fmt.Errorf("is a symbolic link, want a file: %w", syscall.EPERM)
	case errors.Is(err, fs.ErrPermission):
		return "", fmt.Errorf("cannot be read: chmod 755 its directory and 644 the file: %w", errors.Unwrap(err))
	case err != nil:
		return "", fmt.Errorf("cannot be read: %w", errors.Unwrap(err))
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", errors.Unwrap(err))
	}
	switch st := info.Sys().(*syscall.Stat_t); {
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("is not a regular file: %w", syscall.EPERM)
	case int(st.Uid) != owner:
		return "", fmt.Errorf("belongs to uid %d, want %d: chown %[2]d it if what it says is right: %w", st.Uid, owner, syscall.EPERM)
	case info.Mode()&0o022 != 0:
		return "", fmt.Errorf("has mode %#o, so that others than its owner can write it: chmod 644 it if what it says is right: %w", info.Mode().Perm(), syscall.EPERM)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", fmt.Errorf("cannot be read: %w", errors.Unwrap(err))
	}
	if len(b) > maxFile {
		return "", fmt.Errorf("has more than %d bytes: %w", maxFile, syscall.EINVAL)
	}
	return string(b), nil
}
