//go:build linux

package hostdir

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// peerGroups returns the supplementary groups of the process at the other end of a Unix
// socket.
func peerGroups(fd int) ([]int, error) {
	gids := make([]uint32, 32)
	for {
		size := uint32(4 * len(gids))
		_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), unix.SOL_SOCKET, unix.SO_PEERGROUPS,
			uintptr(unsafe.Pointer(&gids[0])), uintptr(unsafe.Pointer(&size)), 0)
		switch {
		case errno == unix.ERANGE && int(size/4) > len(gids): // the size is what it takes
			gids = make([]uint32, size/4)
			continue
		case errno != 0:
			return nil, errno
		}
		groups := make([]int, 0, size/4)
		for _, gid := range gids[:size/4] {
			groups = append(groups, int(gid))
		}
		return groups, nil
	}
}
