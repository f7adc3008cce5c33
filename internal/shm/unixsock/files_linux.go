package unixsock

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// maxFiles is how many files may come with bytes at most, and with those behind them.
const maxFiles = 32

// sendsFiles says that Unix sockets carry files here.
const sendsFiles = true

// refuseFiles has the kernel refuse files that are sent to a socket, or to one that it accepts. Linux can
// since 6.16.
func refuseFiles(fd int) {
	if oldKernel == "" {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 0)
	}
}

// closeToAll has the file of a socket, which is bound later, be of mode 0.
func closeToAll(fd int) error { return unix.Fchmod(fd, 0) }

func acceptFiles(fd int) error {
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSRIGHTS, 1)
	if errors.Is(err, unix.ENOPROTOOPT) {
		return nil // files always pass
	}
	return os.NewSyscallError("setsockopt", err)
}

// prepare prepares a connected socket, and reports whether files may have been sent to it.
func prepare(fd int) (open bool) {
	// Otherwise a read would discard an urgent byte, and the file that came with it.
	err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, 1)
	return mayPass(fd) || err != nil
}

// mayPass reports whether files may have been sent to a socket that refuseFiles has prepared.
func mayPass(fd int) bool {
	pass, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PASSRIGHTS)
	return oldKernel != "" || err != nil || pass != 0
}

// peerUser returns the user at the other end, or -1.
func peerUser(fd int) int {
	cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	if err != nil {
		return -1
	}
	return int(cred.Uid)
}

func rights(send []int) []byte { return unix.UnixRights(send...) }

// readable reports whether a read would not wait.
func readable(fd int) bool {
	look := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN | unix.POLLRDHUP}}
	n, err := unix.Poll(look, 0)
	return n > 0 || err != nil && err != unix.EINTR
}

// stopListening has the kernel refuse further connections.
func stopListening(fd int) error { return unix.Shutdown(fd, unix.SHUT_RDWR) }

// errLeft reports that something is left to be read.
var errLeft = errors.New("something is left")

// empty returns nil if nothing is left to be read of a socket that is shut down.
func empty(fd int) error {
	var b [1]byte
	n, _, _, _, err := unix.Recvmsg(fd, b[:], nil, unix.MSG_PEEK|unix.MSG_DONTWAIT)
	if n > 0 {
		return errLeft
	}
	return err
}

// receive reads what there is, with up to most files.
func (c *Conn) receive(p []byte, most int) (n int, got []int, err error) {
	if len(p) == 0 {
		return 0, nil, nil
	}
	raw, err := c.sock.SyscallConn()
	if err != nil {
		return 0, nil, err
	}
	if waited := raw.Read(func(fd uintptr) bool {
		n, got, err = c.take(int(fd), p, most)
		return err != unix.EAGAIN
	}); waited != nil {
		return 0, nil, waited
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	if err != nil {
		Discard(c.uid, got...)
		return 0, nil, err
	}
	return n, got, nil
}

// take reads once. It looks first, with copies of the descriptors if there are any: what the kernel then
// drops is open here. A look sees the files of the message behind p too.
func (c *Conn) take(fd int, p []byte, most int) (n int, got []int, err error) {
	const look = unix.MSG_PEEK | unix.MSG_CMSG_CLOEXEC | unix.MSG_DONTWAIT
	n, _, flags, _, err := unix.Recvmsg(fd, p, nil, look)
	if err != nil || n == 0 {
		return 0, nil, retry(err)
	}
	if flags&unix.MSG_CTRUNC == 0 {
		n, _, _, _, err = unix.Recvmsg(fd, p[:n], nil, unix.MSG_DONTWAIT)
		return n, nil, retry(err)
	}
	room := make([]byte, unix.CmsgSpace(4*maxFiles))
	_, control, flags, _, err := unix.Recvmsg(fd, p[:n], room, look)
	if err != nil {
		return 0, nil, retry(err)
	}
	got, err = descriptors(room[:control])
	if err != nil || flags&unix.MSG_CTRUNC != 0 {
		return 0, got, errors.Join(ErrFiles, err)
	}
	n, _, flags, _, err = unix.Recvmsg(fd, p[:n], nil, unix.MSG_DONTWAIT)
	switch {
	case err != nil:
		return 0, got, retry(err)
	case flags&unix.MSG_CTRUNC == 0: // they are behind p, and so stay open there
		for _, f := range got {
			if isPlain(f) {
				unix.Close(f)
			} else {
				Discard(c.uid, f)
			}
		}
		return n, nil, nil
	case len(got) > most:
		return 0, got, fmt.Errorf("%w: %d files", ErrFiles, len(got))
	}
	return n, got, nil
}

// isPlain reports whether a file is a socket or memory, whose descriptors close at once while it is open
// elsewhere. Those of other files may not.
func isPlain(fd int) bool {
	_, socket := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	_, memory := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	return socket == nil || memory == nil
}

// retry returns the error of a call that is to be made again as EAGAIN.
func retry(err error) error {
	if err == unix.EAGAIN || err == unix.EINTR {
		return unix.EAGAIN
	}
	return os.NewSyscallError("recvmsg", err)
}

// descriptors returns the descriptors in control messages. Those that it returns with an error are open
// too.
func descriptors(control []byte) (fds []int, err error) {
	messages, err := unix.ParseSocketControlMessage(control)
	for i := range messages {
		more, e := unix.ParseUnixRights(&messages[i])
		fds, err = append(fds, more...), errors.Join(err, e)
	}
	return fds, err
}

// Discard closes descriptors that a user has sent. It does not wait for that.
func Discard(uid int, fds ...int) {
	for _, fd := range fds {
		files.add(uid, func() {
			// A socket that lingers is reset.
			_ = unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
			unix.Close(fd)
		})
	}
}

// stow is a pair of sockets that has others in its queue, so that they take no descriptors.
type stow struct{ in, out int }

// stow keeps a socket of a user open in a stow. The caller closes the descriptor, which is not the last one, and
// calls hasStowed.
func (c *closer) stow(uid, fd int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	u := c.of(uid)
	if last := len(u.stowed) - 1; last < 0 || u.stowed[last].put(fd) != nil {
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			return err
		}
		s := &stow{pair[0], pair[1]}
		if err := s.put(fd); err != nil {
			s.close()
			return err
		}
		u.stowed = append(u.stowed, s)
		c.count(u, 1)
	}
	u.stowing++
	return nil
}

func (s *stow) put(fd int) error {
	_, err := unix.SendmsgN(s.in, []byte{0}, unix.UnixRights(fd), nil, unix.MSG_NOSIGNAL)
	return err
}

func (s *stow) close() {
	unix.Close(s.in)
	unix.Close(s.out)
}
