package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
)

// passed is a listening socket that the process was started with. The process that passed it listens too. So clients wait in the
// kernel's queue while no proxy accepts.
type passed struct {
	file *os.File // as it was passed, by which a listener can be made at any time; its name is for messages
	at   Endpoint
}

// Pass gives the server sockets that the process was started with, which it owns from then on. A map that listens at
// the address of one accepts from it. It is called before Apply.
func (s *Server) Pass(files []*os.File) error {
	for _, f := range files {
		p := passed{file: f}
		s.env.passed = append(s.env.passed, p)
		ln, err := p.listen()
		if err != nil {
			return fmt.Errorf("socket %q that was passed: %w", f.Name(), err)
		}
		s.env.passed[len(s.env.passed)-1].at = Endpoint{ln.Addr().Network(), ln.Addr().String()}
		ln.Close()
	}
	return nil
}

// listen returns a listener on the socket. Its Close leaves the socket as it is.
func (p passed) listen() (net.Listener, error) {
	if !isListener(p.file) {
		return nil, errors.New("want one that listens for streams, as ListenStream= without Accept= in a .socket unit")
	}
	ln, err := net.FileListener(p.file)
	if err != nil {
		return nil, err
	}
	return unixsock.Share(ln)
}

// isFor reports whether a map listens at the address of the socket.
func (p passed) isFor(e Endpoint) bool {
	if !e.has(p.at.Network) {
		return false
	}
	if p.at.Network == networkUnix {
		return absolute(e.Address) == absolute(p.at.Address)
	}
	want, err := net.ResolveTCPAddr(networkTCP, e.Address)
	is, bad := netip.ParseAddrPort(p.at.Address)
	if err != nil || bad != nil || want.Port != int(is.Port()) {
		return false
	}
	ip := is.Addr().Unmap()
	if want.IP == nil {
		return ip.IsUnspecified()
	}
	return ip.WithZone("") == want.AddrPort().Addr().Unmap().WithZone("")
}

func absolute(path string) string {
	if abs, err := filepath.Abs(path); err == nil && !unixsock.IsAbstract(path) {
		return abs
	}
	return path
}

// passedTo returns the listener of a socket that was passed for an address, or nil if none was.
func (e env) passedTo(at Endpoint) (net.Listener, error) {
	for _, p := range e.passed {
		if p.isFor(at) {
			return p.listen()
		}
	}
	return nil, nil
}

// checkPassed returns an error about a socket that was passed and that no map accepts from.
func (e env) checkPassed(c *Config) error {
	for _, p := range e.passed {
		at := slices.IndexFunc(c.Maps, func(m Map) bool { return p.isFor(m.Listen) })
		if at < 0 {
			return fmt.Errorf("no map listens at %v, of which the socket was passed as %q; give it a map, or take it out of the .socket unit", p.at, p.file.Name())
		}
		if c.Maps[at].Socket != nil {
			return fmt.Errorf("mode, owner and group are not for %v, whose socket was passed; its .socket unit has SocketMode=, SocketUser= and SocketGroup=", p.at)
		}
	}
	return nil
}
