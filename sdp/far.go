package sdp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/dial"
	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/internal/inetdiag"
	"github.com/ntbnet/ntbnet/internal/link"
)

// Network "tcp" to an address that option hostI gives to another node. The node is asked, by the Hello of
// the connection, whether a listener of the fabric serves the TCP socket that TCP would reach there. Any
// other answer, or none in time, means TCP.

const (
	// askLimit is how long a node has to answer.
	askLimit = time.Second
	// silentPause is how long a node that has not answered is not asked again.
	silentPause = time.Second
)

// silence is whether a node answers. The zero silence is of one that does. Times are those since begun.
type silence struct {
	until atomic.Int64 // when the node is asked again; 0 if it answers
}

var begun = time.Now()

// mayAsk reports whether to ask the node now. Of the dials that would ask one that is silent, one does in silentPause.
func (s *silence) mayAsk(now time.Duration) bool {
	until := s.until.Load()
	return until == 0 || int64(now) >= until && s.until.CompareAndSwap(until, int64(now+silentPause))
}

// heard records whether the node has answered.
func (s *silence) heard(answered bool, now time.Duration) {
	until := int64(0)
	if !answered {
		until = int64(now + silentPause)
	}
	s.until.Store(until)
}

// Why a dial of another node's address is not made by SDP.
var (
	errNodeDown   = fmt.Errorf("the node is not reached: %w", syscall.EHOSTUNREACH)
	errNodeSilent = fmt.Errorf("the node makes no connection within %v: %w", askLimit, syscall.ETIMEDOUT)
	errNoSource   = errors.New("option hostI gives this node no address of that family")
)

// seekNode returns the destination of a dial to an address of another node, or the reason why there is none, and
// its counter.
func (f *Fabric) seekNode(node int, to netip.AddrPort, route inetdiag.Route) (*destination, counter, error) {
	joined, n := f.stack.fabric, f.counters
	source, ok := joined.OwnAddr(route.Source, to.Addr())
	switch {
	case !ok:
		return nil, &n.dialNotLocal, errNoSource
	case !joined.Reaches(node):
		return nil, &n.dialNoNode, errNodeDown
	case !f.stack.silences[node].mayAsk(time.Since(begun)):
		return nil, &n.dialNoNode, errNodeSilent
	}
	return &destination{host: node, port: int(to.Port()), tcp: true, asks: true, source: source, to: to.Addr().Unmap()}, nil, nil
}

// dialNodeAddr is dial to an address of another node.
func (f *Fabric) dialNodeAddr(ctx context.Context, d destination) (*Conn, error) {
	limited, cancel := context.WithTimeout(ctx, askLimit)
	defer cancel()
	c, err := f.dial(limited, d)
	if ctx.Err() != nil {
		return c, err
	}
	if limited.Err() == nil || !errors.Is(err, limited.Err()) {
		f.stack.silences[d.host].heard(true, 0)
		return c, err
	}
	if !f.stack.fabric.Reaches(d.host) {
		return nil, errNodeDown
	}
	f.stack.silences[d.host].heard(false, time.Since(begun))
	return nil, fmt.Errorf("%w: %v", errNodeSilent, err)
}

// whyByTCP returns the counter of an error of dialNodeAddr.
func (f *Fabric) whyByTCP(err error) counter {
	switch {
	case errors.Is(err, errNodeSilent), errors.Is(err, errNodeDown):
		return &f.counters.dialNoNode
	case errors.Is(err, syscall.ECONNREFUSED):
		return &f.counters.dialNoSDP
	}
	return &f.counters.dialSDPFailed
}

// byTCP logs, once for each reason, that a dial of another node's address goes on by TCP. If the fabric
// forbids that, it returns the error of the dial.
func (f *Fabric) byTCP(network string, to netip.AddrPort, why error) error {
	node, _ := f.stack.fabric.NodeOf(to.Addr())
	if op := new(net.OpError); errors.As(why, &op) {
		why = op.Err // the rest is said here
	}
	why = fmt.Errorf("%s: %w", f.hostName(node), why)
	if f.stack.fabric.Strict() {
		return &net.OpError{Op: opDial, Net: network, Addr: net.TCPAddrFromAddrPort(to), Err: why}
	}
	logTCP(tcpNode, fmt.Errorf("%v of %w", to, why))
	return nil
}

// answer answers a Hello that asks for the listener of a TCP socket. Without one it refuses, whatever
// the reason. It waits for no process.
func (s *stack) answer(p *bounce.Pool, m *hello.Hello) error {
	socket, holder, ok := s.serverOf(m)
	switch {
	case !ok:
		s.listeners.Refuse(p, m, hello.NotListening, 0)
		return nil
	case holder != s.fabric.Node().ID():
		s.listeners.Refuse(p, m, hello.OtherProcess, holder.Process())
		return nil
	}
	m.TCP.Cookie, m.TCP.Namespace, m.TCP.SourceZone, m.TCP.DestinationZone = socket.Cookie, socket.Namespace, 0, 0
	return s.listeners.Hello(p, m)
}

// serverOf returns the TCP socket that the connection of a Hello would reach, and the process that accepts
// connections for it. A member can say that it is that process. So, as in a dial, it must be of the
// socket's user, or root's.
func (s *stack) serverOf(m *hello.Hello) (socket inetdiag.Listener, holder link.ID, ok bool) {
	to := netip.AddrPortFrom(unmapped(m.TCP.Destination, 0), m.To)
	route, err := s.kernel.RouteTo(to.Addr())
	if err != nil || !route.Local {
		return socket, 0, false
	}
	if socket, ok, err = s.kernel.ListeningFor(m.From, to, route.Interface); err != nil || !ok {
		return socket, 0, false
	}
	if holder, ok, err = s.fabric.SocketHolder(int(m.To), socket.Cookie); err != nil || !ok {
		return socket, 0, false
	}
	return socket, holder, holder == s.fabric.Node().ID() || s.fabric.MemberIs(holder.Process(), socket.UID, 0)
}

// keepsPort reports whether a dial is redirected, and then goes on from the same port: where sockets share
// the listener's port, the kernel's choice depends on it.
func (d *destination) keepsPort(err error) bool {
	return d.asks && errors.As(err, new(*dial.RedirectError))
}
