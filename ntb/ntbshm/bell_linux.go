//go:build linux && (amd64 || arm64)

package ntbshm

import (
	"fmt"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/ntb"
	"golang.org/x/sys/unix"
)

// makeBell makes a doorbell. The waiting end stays here, and the ringing end goes to
// the peer. They are a pair of Unix stream sockets, shut down in both directions for
// good. Shutting down the ringing end once more causes an event at the waiting end,
// and nothing else. There is no queue that could be full or need reading, and
// neither bytes nor files can be sent. The two ends are two open files, so the peer
// cannot change the flags of the waiting end.
func makeBell() (wait, ring int, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, -1, fmt.Errorf("ntbshm: make doorbell: %w", err)
	}
	if err := unix.Shutdown(fds[0], unix.SHUT_RDWR); err != nil {
		files(fds[:]).close()
		return -1, -1, fmt.Errorf("ntbshm: shut doorbell: %w", err)
	}
	return fds[0], fds[1], nil
}

// ringBell rings a doorbell that checkBell has accepted. Nothing that a peer holds
// can make it block for longer than a system call takes.
func ringBell(ring int) { _ = unix.Shutdown(ring, unix.SHUT_RDWR) }

// checkBell refuses a file that is not the ringing end of a doorbell. It uses only
// calls that do not reach the file system or network of the file, since either might
// not answer.
func checkBell(fd int) error {
	for _, option := range []struct {
		name, want int
		what       string
	}{
		{unix.SO_DOMAIN, unix.AF_UNIX, "Unix socket"},
		{unix.SO_TYPE, unix.SOCK_STREAM, "stream socket"},
		{unix.SO_ACCEPTCONN, 0, "connected socket"},
	} {
		if v, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, option.name); err != nil || v != option.want {
			return fmt.Errorf("%w: doorbell is not a %s", ErrBadPeer, option.what)
		}
	}
	if _, err := unix.Getpeername(fd); err != nil {
		return fmt.Errorf("%w: doorbell is not a connected socket: %w", ErrBadPeer, err)
	}
	// POLLHUP means that both directions are shut down.
	shut := []unix.PollFd{{Fd: int32(fd)}}
	if _, err := unix.Poll(shut, 0); err != nil || shut[0].Revents&unix.POLLHUP == 0 {
		return fmt.Errorf("%w: doorbell is not shut", ErrBadPeer)
	}
	return nil
}

// bellsWake is set once tryBells has succeeded.
var bellsWake atomic.Bool

// tryBells rings a doorbell to check that this kernel delivers an event for each
// ring. No standard requires it.
func tryBells() error {
	if bellsWake.Load() {
		return nil
	}
	wait, ring, err := makeBell()
	if err != nil {
		return err
	}
	defer files{wait, ring}.close()
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return fmt.Errorf("ntbshm: try a doorbell: %w", err)
	}
	defer unix.Close(poll)
	event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLET}
	if err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, wait, &event); err != nil {
		return fmt.Errorf("ntbshm: try a doorbell: %w", err)
	}
	// A new file that is shut down is an event of its own. After it there is none.
	for i, want := range []int{1, 0, 1, 0, 1} {
		if i > 0 && want == 1 {
			ringBell(ring)
		}
		var events [1]unix.EpollEvent
		if n, err := unix.EpollWait(poll, events[:], 0); err != nil || n != want {
			return fmt.Errorf("ntbshm: this system does not wake at a doorbell (look %d: %d events, %w): %w", i, n, err, ntb.ErrNotSupported)
		}
	}
	bellsWake.Store(true)
	return nil
}
