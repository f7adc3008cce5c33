package meter

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/ntbnet/ntbnet/internal/unixsock"
	"github.com/ntbnet/ntbnet/sdp"
)

// Transports are the names of the transports, in the order of reports.
var Transports = []string{"sdp", "tcp", "unix"}

// Dial connects to address, which is a path for "unix", by a transport.
func Dial(ctx context.Context, transport, address string, timeout time.Duration) (net.Conn, error) {
	switch transport {
	case "sdp":
		return (&sdp.Dialer{Timeout: timeout}).DialContext(ctx, "sdp", address)
	case "unix":
		if err := unixsock.CheckPath(address); err != nil {
			return nil, err
		}
	}
	return (&net.Dialer{Timeout: timeout}).DialContext(ctx, transport, address)
}

// Listen listens by a transport. "" is SDP and TCP on one port.
func Listen(ctx context.Context, transport, address string) (net.Listener, error) {
	switch transport {
	case "":
		return (&sdp.ListenConfig{}).Listen(ctx, "tcp", address)
	case "sdp":
		return (&sdp.ListenConfig{}).Listen(ctx, "sdp", address)
	case "unix":
		if err := unixsock.CheckPath(address); err != nil {
			return nil, err
		}
	}
	return (&net.ListenConfig{}).Listen(ctx, transport, address)
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
	c, err := Dial(ctx, "tcp", address, iperf3Time)
	if err != nil {
		return false
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(iperf3Time)); err != nil {
		return false
	}
	if _, err := c.Write(preamble{kind: control, run: newRunName()}.bytes()); err != nil {
		return false
	}
	return errors.Is(newControlConn(c).first(), ErrIperf3)
}

// setWindow sets both buffers of a connection.
func setWindow(c net.Conn, bytes int) error {
	b, ok := c.(interface {
		SetReadBuffer(int) error
		SetWriteBuffer(int) error
	})
	if bytes == 0 || !ok {
		return nil
	}
	return errors.Join(b.SetReadBuffer(bytes), b.SetWriteBuffer(bytes))
}

// closeWrite ends what this side sends.
func closeWrite(c net.Conn) error {
	h, ok := c.(interface{ CloseWrite() error })
	if !ok {
		return fmt.Errorf("%T has no CloseWrite", c)
	}
	return h.CloseWrite()
}

// isPath returns whether a host of the command line is the path of a Unix socket.
func isPath(host string) bool { return strings.Contains(host, "/") }

// Address returns the address of a host and port by a transport.
func Address(transport, host, port string) string {
	if transport == "unix" || transport == "" && isPath(host) {
		return host
	}
	return net.JoinHostPort(strings.Trim(host, "[]"), port)
}
