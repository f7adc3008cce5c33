package memfd

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Seals fix the size of a file, and the seals themselves.
const Seals = unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL

// Create makes a file of size bytes, which takes pages as they are touched. The name is shown in
// /proc. The caller owns the descriptor.
func Create(name string, size int64) (fd int, err error) {
	if fd, err = create(name, unix.MemfdCreate); err != nil {
		return -1, fmt.Errorf("make memory file: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
			fd = -1
		}
	}()
	if err := unix.Ftruncate(fd, size); err != nil {
		return fd, fmt.Errorf("make memory file of %d bytes: %w", size, err)
	}
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, Seals); err != nil {
		return fd, fmt.Errorf("seal memory file: %w", err)
	}
	return fd, nil
}

// create makes an empty file that cannot be executed. Where vm.memfd_noexec is 2 there may be no
// other. A kernel before 6.3 does not know the flag.
func create(name string, memfdCreate func(string, int) (int, error)) (fd int, err error) {
	const flags = unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	if fd, err = memfdCreate(name, flags|unix.MFD_NOEXEC_SEAL); err == unix.EINVAL {
		fd, err = memfdCreate(name, flags)
	}
	return fd, err
}

// Check refuses a file whose mapping of size bytes could make this process fault: one that can
// shrink, or whose pages cannot be had. It does not wait for a file system that does not
// answer.
func Check(fd int, size int64) error {
	// This call comes first, because it fails at once where others that reach the
	// file might not return.
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil || seals&Seals != Seals {
		return fmt.Errorf("not sealed (seals %#x)", seals)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("stat: %w", err)
	}
	if st.Size != size {
		return fmt.Errorf("%d bytes, want %d", st.Size, size)
	}
	// A file of huge pages can be sealed as well, and faults where none is free.
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil || fs.Type != unix.TMPFS_MAGIC {
		return errors.New("not of ordinary pages")
	}
	return nil
}
