package hostile

import (
	"net"
	"testing"

	"golang.org/x/sys/unix"
)

// Lingerer returns a TCP socket with unsent data and a peer that does not read. The last close of it
// takes an hour, or until the test ends. The caller closes its own descriptor while others are open.
func Lingerer(t testing.TB) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Skip("WARNING: needs TCP: ", err)
	}
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	reader, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() }) // resets the connection, since it has not read
	raw, err := c.(*net.TCPConn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	fd := -1
	if err := raw.Control(func(c uintptr) { fd, err = unix.FcntlInt(c, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
		t.Fatal(err)
	}
	for err == nil {
		err = unix.Sendto(fd, make([]byte, 1<<16), unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, nil)
	}
	if err := unix.SetsockoptLinger(fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1, Linger: 3600}); err != nil {
		t.Fatal(err)
	}
	return fd
}

// Nested returns a Unix socket that has the last descriptor of a Lingerer in its queue.
func Nested(t testing.TB) int {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pair[0])
	slow := Lingerer(t)
	if _, err := unix.SendmsgN(pair[0], []byte{1}, unix.UnixRights(slow), nil, unix.MSG_NOSIGNAL); err != nil {
		t.Fatal(err)
	}
	unix.Close(slow)
	return pair[1]
}
