package inetdiag

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// SocketOf identifies a TCP socket that listens. For a socket of MPTCP, which net
// makes where the kernel can, it is the socket's counterpart in the TCP layer.
func SocketOf(raw syscall.RawConn) (s Socket, err error) {
	if e := raw.Control(func(fd uintptr) { s, err = socketOf(int(fd)) }); e != nil {
		return Socket{}, e
	}
	return s, err
}

func socketOf(fd int) (s Socket, err error) {
	if s.Namespace, err = namespaceOf(fd); err != nil {
		return Socket{}, err
	}
	protocol, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PROTOCOL)
	if err != nil {
		return Socket{}, fmt.Errorf("inetdiag: SO_PROTOCOL: %w", err)
	}
	if protocol == unix.IPPROTO_MPTCP {
		s.Cookie, err = subflowCookie(fd)
	} else {
		s.Cookie, err = unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_COOKIE)
	}
	if err != nil {
		return Socket{}, fmt.Errorf("inetdiag: SO_COOKIE: %w", err)
	}
	return s, nil
}

// namespaceOf identifies the network namespace of a socket. Kernels before 5.14 do not
// report it. There the result is the calling thread's namespace.
func namespaceOf(fd int) (uint64, error) {
	cookie, err := unix.GetsockoptUint64(fd, unix.SOL_SOCKET, unix.SO_NETNS_COOKIE)
	if err == nil {
		return cookie, nil
	}
	var st unix.Stat_t
	if err := unix.Stat("/proc/thread-self/ns/net", &st); err != nil {
		return 0, fmt.Errorf("inetdiag: network namespace: %w", err)
	}
	return st.Ino, nil
}

// subflowCookie finds the TCP socket by which a socket of MPTCP listens. It has the same
// inode.
func subflowCookie(fd int) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return 0, err
	}
	address, err := unix.Getsockname(fd)
	if err != nil {
		return 0, err
	}
	kind, port := byte(unix.AF_INET), 0
	switch a := address.(type) {
	case *unix.SockaddrInet4:
		port = a.Port
	case *unix.SockaddrInet6:
		kind, port = unix.AF_INET6, a.Port
	}
	c, err := OpenNetlink(unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	message := diagRequest(kind)
	order.PutUint16(message[6:], unix.NLM_F_REQUEST|unix.NLM_F_DUMP)
	message[24], message[25] = byte(port>>8), byte(port)
	var cookie uint64
	_, err = c.Ask(message, make([]byte, dumpRoom), func(payload []byte) error {
		a, err := parseAnswer(payload)
		if err == nil && a.state == stateListen && a.inode == uint32(st.Ino) {
			cookie = a.cookie
		}
		return err
	})
	if err == nil && cookie == 0 {
		err = fmt.Errorf("MPTCP listens without a TCP socket on port %d: %w", port, syscall.ENOENT)
	}
	return cookie, err
}

// works returns an error if the kernel cannot look up TCP sockets at all. The kernel
// reports that by the same number as a socket that does not exist. So works tries
// once, with a socket of its own. If it cannot make one, it assumes that look-ups
// work.
var works = sync.OnceValue(func() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	loopback := [4]byte{127, 0, 0, 1}
	if unix.Bind(fd, &unix.SockaddrInet4{Addr: loopback}) != nil || unix.Listen(fd, 0) != nil {
		return nil
	}
	name, err := unix.Getsockname(fd)
	if err != nil {
		return nil
	}
	port := uint16(name.(*unix.SockaddrInet4).Port)
	var k Kernel
	defer k.Close()
	_, ok, err := k.lookUp(firstSourcePort, netip.AddrPortFrom(netip.AddrFrom4(loopback), port), loopbackIndex)
	if err == nil && !ok {
		err = fmt.Errorf("inetdiag: the kernel does not find a TCP socket that listens: is tcp_diag missing? %w", errors.ErrUnsupported)
	}
	return err
})
