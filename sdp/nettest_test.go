package sdp

import (
	"net"
	"testing"

	"github.com/ntbnet/ntbnet/internal/fabrictest"
	"golang.org/x/net/nettest"
)

// fabrics returns the backends on which the behaviours are tested.
func fabrics(t *testing.T) []string {
	return []string{"mem:test", "shm:" + fabrictest.Name(t)}
}

// onFabrics runs a test on a Host of each backend.
func onFabrics(t *testing.T, f func(t *testing.T, h *Host)) {
	for _, spec := range fabrics(t) {
		t.Run(spec[:3], func(t *testing.T) {
			h := open(t, spec)
			defer h.Close()
			f(t, h)
		})
	}
}

// pipe makes the two endpoints of a connection.
func pipe(h *Host) (c1, c2 net.Conn, stop func(), err error) {
	ln, err := h.Listen("sdp", "localhost:0")
	if err != nil {
		return nil, nil, nil, err
	}
	defer ln.Close()
	c1, err = h.Dial("sdp", ln.Addr().String())
	if err != nil {
		return nil, nil, nil, err
	}
	c2, err = ln.Accept()
	if err != nil {
		return nil, nil, nil, err
	}
	return c1, c2, func() { c1.Close(); c2.Close() }, nil
}

func TestConn(t *testing.T) {
	onFabrics(t, func(t *testing.T, h *Host) {
		nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) { return pipe(h) })
	})
}
