package sdp

import (
	"net"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"golang.org/x/net/nettest"
)

// fabrics returns the backends on which the behaviours are tested.
func fabrics(t *testing.T) []string {
	return []string{"mem:test", "shm:" + fabrictest.Name(t)}
}

// onFabrics runs a test on a Fabric of each backend.
func onFabrics(t *testing.T, f func(t *testing.T, fabric *Fabric)) {
	for _, spec := range fabrics(t) {
		t.Run(spec[:3], func(t *testing.T) {
			fabric := open(t, spec)
			defer fabric.Close()
			f(t, fabric)
		})
	}
}

// pipe makes the two endpoints of a connection.
func pipe(f *Fabric) (c1, c2 net.Conn, stop func(), err error) {
	return pipeBetween(f, f, "localhost:0")
}

// pipeBetween is pipe from one fabric to an address at which another one listens.
func pipeBetween(from, to *Fabric, address string) (c1, c2 net.Conn, stop func(), err error) {
	ln, err := to.Listen("sdp", address)
	if err != nil {
		return nil, nil, nil, err
	}
	defer ln.Close()
	c1, err = from.Dial("sdp", ln.Addr().String())
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
	onFabrics(t, func(t *testing.T, f *Fabric) {
		nettest.TestConn(t, func() (net.Conn, net.Conn, func(), error) { return pipe(f) })
	})
}
