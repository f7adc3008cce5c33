package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/ntbnet/ntbnet/sdp"
)

// A transparent map has no target. Rules of the kernel redirect connections to its listener, and each goes on to
// where its client wanted to go, if that is an address that the fabric gives to a host.

// transparentTarget stands for the target of a transparent map in what people read.
const transparentTarget = "transparent"

// errRedirectedAgain is the cause for connections that the proxy itself has made.
var errRedirectedAgain = errors.New("transparent: rules redirect the proxy's own connections; have them leave out its user")

// findTarget finds out where the client of a transparent map wanted to go. It returns why the client is turned
// away, or "".
func (e env) findTarget(line *lastLine) (cause string) {
	c, ok := line.client.(*net.TCPConn)
	if !ok {
		return "transparent: not a TCP socket"
	}
	to, err := originalDestination(c)
	if err != nil || to == unmapped(c.LocalAddr()) {
		return "transparent: nothing redirected it"
	}
	line.target = Endpoint{networkTCP, to.String()}
	if !e.hasAddress(to.Addr()) {
		return "transparent: not an address of the fabric's hosts"
	}
	line.way = way{unmapped(c.RemoteAddr()), to}
	return ""
}

// unmapped returns an address of TCP, IPv4 as such.
func unmapped(a net.Addr) netip.AddrPort {
	at := a.(*net.TCPAddr).AddrPort()
	return netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
}

// dialTarget connects to where the client wanted to go: by SDP, or by TCP where network "tcp" of package sdp does.
func (d *dialer) dialTarget(e *lastLine) (net.Conn, error) {
	if !d.own.accepted(e.way) {
		return nil, errRedirectedAgain
	}
	by := sdp.Dialer{Timeout: e.m.DialTimeout, Fabric: d.fabric, TCP: tcpDialer(e.m.DialTimeout)}
	c, err := by.DialContext(d.ctx, networkTCP, e.target.Address)
	if err != nil {
		return nil, err
	}
	if networkOf(c) == networkTCP {
		e.onward = way{unmapped(c.LocalAddr()), e.way.to}
		if !d.own.dialled(e.onward) {
			c.Close()
			return nil, errRedirectedAgain
		}
	}
	return c, nil
}

// way is a TCP connection, as the side that dialled it sees it.
type way struct{ from, to netip.AddrPort }

// ownWays finds connections by TCP that a forwarder has made, and that come back to it since rules redirect those
// too. They are the same way, accepted and dialled. It is found by the call that comes second.
type ownWays struct {
	mu   sync.Mutex
	ways map[way]int // of open connections, the sides that are known; guarded by mu
}

// Sides of a way.
const (
	wasAccepted = 1 << iota
	wasDialled
)

// accepted notes a way until forget. It returns false if the forwarder has dialled it.
func (o *ownWays) accepted(w way) bool { return o.note(w, wasAccepted) }

// dialled notes a way until forget. It returns false if the forwarder has accepted it.
func (o *ownWays) dialled(w way) bool { return o.note(w, wasDialled) }

func (o *ownWays) note(w way, as int) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ways == nil {
		o.ways = map[way]int{}
	}
	o.ways[w] |= as
	return o.ways[w] == as
}

// forget forgets the ways of a connection.
func (o *ownWays) forget(e *lastLine) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ways[e.way] &^= wasAccepted
	o.ways[e.onward] &^= wasDialled
	for _, w := range []way{e.way, e.onward} {
		if o.ways[w] == 0 {
			delete(o.ways, w)
		}
	}
}

// checkTransparent returns an error about a map that can be transparent nowhere, or not in this fabric.
func (f Fabric) checkTransparent(m *Map) error {
	switch {
	case !canRedirect:
		return fmt.Errorf("map %v: transparent: %w on this system", m, errors.ErrUnsupported)
	case !f.hasAddresses():
		return fmt.Errorf("map %v: transparent: fabric %q has no addresses of hosts; give it some, as in host2=10.77.0.2", m, f.Text)
	}
	return nil
}
