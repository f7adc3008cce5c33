package proxy

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/sdp"
)

// listen opens the left side of a map. The error is one line that says what to do. Where the map is not for all users,
// allow chooses those who may connect.
func listen(ctx context.Context, m *Map, allow func(sdp.Peer) error, fabric *sdp.Fabric) (net.Listener, error) {
	var ln net.Listener
	var err error
	e := m.Listen
	switch e.Network {
	case networkSDP:
		lc := sdp.ListenConfig{Fabric: fabric}
		if !m.Users.All() {
			lc.Allow = allow
		}
		ln, err = lc.Listen(ctx, e.Network, e.Address)
	case networkUnix:
		var l *unixsock.Listener
		if l, err = unixsock.ListenAs(ctx, e.Address, m.rights()); err == nil {
			ln = l
		}
	default:
		// It uses plain TCP. With Multipath TCP a single path may end, and a reset
		// would not mean what relay takes it to mean.
		lc := net.ListenConfig{KeepAlive: -1} // see keepAlive
		lc.SetMultipathTCP(false)
		ln, err = lc.Listen(ctx, e.Network, e.Address)
	}
	if err != nil {
		return nil, explainListen(e, err)
	}
	return ln, nil
}

// explainListen adds to err what can be done about it.
func explainListen(e Endpoint, err error) error {
	var advice string
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		advice = "another program listens there; stop it or choose another address"
	case errors.Is(err, os.ErrPermission) && e.Network == networkTCP:
		advice = "ports below 1024 need privileges; choose a higher one"
	case errors.Is(err, os.ErrPermission):
		advice = "this user may not create it; choose another place or check the rights there"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		advice = "this machine has no such address"
	case e.Network == networkUnix && errors.Is(err, os.ErrNotExist):
		advice = "make the directory first"
	default:
		return fmt.Errorf("cannot listen on %v: %w", e, err)
	}
	return fmt.Errorf("cannot listen on %v: %w; %s", e, rootCause(err), advice)
}

// rootCause removes the layers of an error that only repeat the address.
func rootCause(err error) error {
	var errno syscall.Errno
	if errors.As(err, &errno) {
		return errno
	}
	return err
}
