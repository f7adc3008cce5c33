package proxy

import (
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// arrived returns how many bytes have arrived that were not read. raw must not be nil.
func (r *reader) arrived() (n int) {
	if r.err != nil {
		return 0
	}
	_ = r.raw.Control(func(fd uintptr) {
		if n, _ = unix.IoctlGetInt(int(fd), unix.SIOCINQ); n < 0 {
			n = 0
		}
	})
	return n
}

// hasError reports whether a socket has an error that no call has returned, such as a reset.
func hasError(c net.Conn) (has bool) {
	if raw := rawSocket(c); raw != nil {
		_ = raw.Control(func(fd uintptr) {
			p := []unix.PollFd{{Fd: int32(fd)}}
			n, err := unix.Poll(p, 0)
			has = err == nil && n > 0 && p[0].Revents&unix.POLLERR != 0
		})
	}
	return has
}

// moved returns how many bytes the peer of a TCP connection has sent and taken.
func moved(c *net.TCPConn) (n int64) {
	if raw := rawSocket(c); raw != nil {
		_ = raw.Control(func(fd uintptr) {
			if i, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
				n = int64(i.Bytes_acked + i.Bytes_received)
			}
		})
	}
	return n
}

// connectAhead begins to connect a socket, in which package net goes on. On loopback that is all: package net finds
// the socket connected, and does not wait for it. An error is left to package net, which gets it again.
func connectAhead(_, address string, raw syscall.RawConn) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || at.Addr().Zone() != "" {
		return nil
	}
	return raw.Control(func(fd uintptr) {
		if at.Addr().Is4() {
			_ = unix.Connect(int(fd), &unix.SockaddrInet4{Port: int(at.Port()), Addr: at.Addr().As4()})
		} else {
			_ = unix.Connect(int(fd), &unix.SockaddrInet6{Port: int(at.Port()), Addr: at.Addr().As16()})
		}
	})
}
