package meter

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/sdp"
)

// Transports are the names of the transports, in the order of reports.
var Transports = []string{"sdp", "tcp", "unix"}

// Target is a server.
type Target struct {
	Transport string
	Family    string        // of IP: for "tcp" "4" or "6", else ""
	Address   string        // a path for "unix"
	Timeout   time.Duration // for each dial
	Port      int           // from which the first stream of "tcp" comes, and one more for each other one; 0 for any
	Trace     io.Writer     // what is said on the control connection; nil for nothing
}

// dial connects, and sends a preamble.
func (t Target) dial(ctx context.Context, kind byte, run string, window int) (c net.Conn, err error) {
	if t.Transport == "sdp" {
		c, err = (&sdp.Dialer{Timeout: t.Timeout}).DialContext(ctx, "sdp", t.Address)
	} else if err = checkPath(t.Transport, t.Address); err == nil {
		d := &net.Dialer{Timeout: t.Timeout}
		if t.Port != 0 && kind == data {
			d.LocalAddr = &net.TCPAddr{Port: t.Port}
		}
		c, err = d.DialContext(ctx, t.Transport+t.Family, t.Address)
	}
	if err != nil {
		return nil, err
	}
	if got := transportOf(c); got != t.Transport {
		err = fmt.Errorf("the connection goes by %s", got)
	}
	if err = cmp.Or(err, setWindow(c, window)); err == nil {
		_, err = c.Write(preamble(kind, run))
	}
	if err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Listen listens by a transport, and a family as that of Target. A transport of "" is SDP and TCP on one port.
func Listen(ctx context.Context, transport, family, address string) (net.Listener, error) {
	if transport == "" || transport == "sdp" {
		return (&sdp.ListenConfig{}).Listen(ctx, cmp.Or(transport, "tcp")+family, address)
	}
	if err := checkPath(transport, address); err != nil {
		return nil, err
	}
	return (&net.ListenConfig{}).Listen(ctx, transport+family, address)
}

func checkPath(transport, address string) error {
	if transport != "unix" {
		return nil
	}
	return unixsock.CheckPath(address)
}

// Address returns the address of a host and port by a transport. A host of "unix" is a path.
func Address(transport, host, port string) string {
	if transport == "unix" {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}

// transportOf returns the transport of a connection.
func transportOf(c net.Conn) string {
	if _, ok := c.(*sdp.Conn); ok {
		return "sdp"
	}
	return c.RemoteAddr().Network()
}

// iperf3Time is how long a port is asked who holds it.
const iperf3Time = 2 * time.Second

// IsIperf3 returns whether a server of iperf3 answers at a TCP port.
func IsIperf3(ctx context.Context, address string) bool {
	c, err := Target{Transport: "tcp", Address: address, Timeout: iperf3Time}.dial(ctx, control, rand.Text(), 0)
	if err != nil {
		return false
	}
	defer c.Close()
	_, err = newControlConn(c, maxLine).receive(iperf3Time)
	return errors.Is(err, ErrIperf3)
}

// streamConn is a connection by any of the transports.
type streamConn interface {
	CloseWrite() error
	SetReadBuffer(bytes int) error
	SetWriteBuffer(bytes int) error
}

// setWindow sets both buffers of a connection. 0 leaves them alone.
func setWindow(c net.Conn, bytes int) error {
	if bytes == 0 {
		return nil
	}
	s := c.(streamConn)
	return errors.Join(s.SetReadBuffer(bytes), s.SetWriteBuffer(bytes))
}

// closeWrite ends what this side sends.
func closeWrite(c net.Conn) error { return c.(streamConn).CloseWrite() }
