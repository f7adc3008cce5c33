package sdp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/inetdiag"
	"github.com/ntbnet/ntbnet/internal/link"
)

// dialTCP dials network "tcp". The server is the one that net would reach. If it is a
// listener of the fabric, the connection is made by SDP, otherwise by TCP. The reason
// for TCP is counted.
func (d *Dialer) dialTCP(ctx context.Context, network, address string) (net.Conn, error) {
	f, done, err := d.Fabric.useForTCP(ctx)
	if err != nil && !tcpAlone(d.Fabric, err) {
		return nil, &net.OpError{Op: opDial, Net: network, Err: cause(opDial, err)}
	}
	if err != nil {
		defaultFabric.counters.dialNoFabric.Add(1)
		logAlone(err)
		return d.net().DialContext(ctx, network, address)
	}
	defer done()
	if d.needsSocket() {
		f.counters.dialNeedsSocket.Add(1)
		return d.net().DialContext(ctx, network, address)
	}
	name, port, _ := net.SplitHostPort(address)
	if node, ok := f.stack.fabric.FindNode(name); ok {
		return d.dialNode(ctx, f, node, network, address)
	}
	if to, ok := literal(ctx, network, name, port); ok {
		return d.dialLiteral(ctx, f, network, address, to)
	}
	return d.dialName(ctx, f, network, address)
}

// net returns the net.Dialer that dials by TCP.
func (d *Dialer) net() *net.Dialer {
	var n net.Dialer
	if d.TCP != nil {
		n = *d.TCP
	}
	return &n
}

// needsSocket reports whether the Dialer wants what only a socket has.
func (d *Dialer) needsSocket() bool {
	return d.TCP != nil && (d.TCP.LocalAddr != nil || d.TCP.Control != nil || d.TCP.ControlContext != nil)
}

// dialNode connects to a port of a node. Only the fabric knows the node's name.
func (d *Dialer) dialNode(ctx context.Context, f *Fabric, node int, network, address string) (net.Conn, error) {
	_, port, err := splitAddress(ctx, address)
	if err != nil || port == 0 {
		return d.net().DialContext(ctx, network, address) // its error is the one that users know
	}
	c, err := traced(ctx, network, verbatim(address), func() (*Conn, error) {
		return f.dial(ctx, destination{host: node, port: port, tcp: true})
	})
	if err == nil {
		f.counters.dialSDP.Add(1)
		return c, nil
	}
	f.counters.dialSDPFailed.Add(1)
	addr := net.TCPAddrFromAddrPort(netip.AddrPortFrom(f.stack.fabric.NodeAddr(node), uint16(port)))
	sdpErr := &net.OpError{Op: opDial, Net: network, Addr: addr, Err: cause(opDial, err)}
	if forbidden(err) {
		return nil, sdpErr
	}
	t, err := d.net().DialContext(ctx, network, address)
	if unknown := new(net.DNSError); errors.As(err, &unknown) || errors.Is(err, syscall.EINVAL) || ctx.Err() != nil {
		return nil, sdpErr // a node's name is mostly unknown to the name server
	}
	logTCP(tcpFailed, sdpErr)
	return t, err
}

// literal returns the address to which net connects without asking a name server. It
// returns false for a name, and for what net refuses.
func literal(ctx context.Context, network, host, service string) (netip.AddrPort, bool) {
	port, err := net.DefaultResolver.LookupPort(ctx, "tcp", service)
	if err != nil || port == 0 {
		return netip.AddrPort{}, false
	}
	var a netip.Addr
	switch {
	case host == "" && network == "tcp6":
		a = netip.IPv6Unspecified()
	case host == "":
		a = netip.IPv4Unspecified()
	default:
		a, err = netip.ParseAddr(host)
		if err != nil || a == netip.IPv6Unspecified() { // for which net tries IPv4 too
			return netip.AddrPort{}, false
		}
	}
	a = a.Unmap()
	if network == "tcp4" && !a.Is4() || network == "tcp6" && a.Is4() {
		return netip.AddrPort{}, false
	}
	return netip.AddrPortFrom(a, uint16(port)), true
}

// dialLiteral connects to an address.
func (d *Dialer) dialLiteral(ctx context.Context, f *Fabric, network, address string, to netip.AddrPort) (net.Conn, error) {
	had := f.holding(int(to.Port()))
	if _, ok := f.stack.fabric.NodeOf(to.Addr()); !ok && !had.held {
		f.counters.dialNoSDP.Add(1)
		return d.net().DialContext(ctx, network, address)
	}
	limited, cancel := d.limit(ctx)
	defer cancel()
	c, why, err := f.dialAddr(limited, network, to, had)
	if c != nil {
		f.counters.dialSDP.Add(1)
		return c, nil
	}
	why.Add(1)
	if err != nil {
		return nil, err
	}
	return d.net().DialContext(ctx, network, address)
}

// limit adds to ctx the limits that net.Dialer adds.
func (d *Dialer) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	n := d.net()
	end := n.Deadline
	if n.Timeout != 0 { // also a negative one, which is over
		if t := time.Now().Add(n.Timeout); end.IsZero() || t.Before(end) {
			end = t
		}
	}
	canceled := n.Cancel //lint:ignore SA1019 old programs set it
	cancel := func() {}
	if !end.IsZero() {
		ctx, cancel = context.WithDeadline(ctx, end)
	}
	if canceled == nil {
		return ctx, cancel
	}
	ctx, give := context.WithCancel(ctx)
	go func() {
		select {
		case <-canceled:
			give()
		case <-ctx.Done():
		}
	}()
	return ctx, func() { give(); cancel() }
}

// dialAddr connects to the listener of this fabric that a TCP connection to an address
// would reach. had is what the fabric has on its port. If there is none, it returns the
// counter of the reason. An error is final: the time is over, or the dial was refused because
// of a user, or must not go on by TCP.
func (f *Fabric) dialAddr(ctx context.Context, network string, to netip.AddrPort, had holding) (*Conn, counter, error) {
	if ctx.Err() != nil {
		return nil, &f.counters.dialSDPFailed, nil // net returns the error
	}
	d, why, reason := f.seek(to, had)
	if reason != nil {
		return nil, why, f.byTCP(network, to, reason)
	}
	if d == nil {
		return nil, why, nil
	}
	dial := f.dial
	if d.asks {
		dial = f.dialNodeAddr
	}
	c, err := traced(ctx, network, to, func() (*Conn, error) {
		c, err := dial(ctx, *d)
		if err != nil {
			err = &net.OpError{Op: opDial, Net: network, Addr: net.TCPAddrFromAddrPort(to), Err: cause(opDial, err)}
		}
		return c, err
	})
	switch {
	case err == nil:
		return c, nil, nil
	case errors.Is(err, errNotItsServer):
		logTCP(tcpNotOurs, err)
		return nil, &f.counters.dialNoSDP, nil
	case ctx.Err() != nil, forbidden(err):
		return nil, &f.counters.dialSDPFailed, err
	case d.asks:
		return nil, f.whyByTCP(err), f.byTCP(network, to, err)
	}
	logTCP(tcpFailed, err)
	return nil, &f.counters.dialSDPFailed, nil
}

// holding is what the fabric says of a port.
type holding struct {
	held    bool                   // there is a listener
	socket  fabric.PublishedSocket // one of those published there
	sockets bool                   // there is one; if not, the listener is of network "sdp"
}

// holding finds out what the fabric has on a port of this host.
func (f *Fabric) holding(port int) (had holding) {
	joined := f.stack.fabric
	var err error
	had.socket, had.sockets, err = joined.AnySocket(port)
	had.held = had.sockets
	if err == nil && !had.held {
		_, had.held, err = joined.Holder(port)
	}
	if err != nil {
		return holding{}
	}
	return had
}

// seek asks the kernel which socket a connection to an address would reach, and the
// fabric whether that is a listener's. It returns the counter of why there is no destination,
// and, of an address that option hostI gives to another node, why that has none.
func (f *Fabric) seek(to netip.AddrPort, had holding) (_ *destination, why counter, reason error) {
	joined, n := f.stack.fabric, f.counters
	port := int(to.Port())
	route, err := f.stack.kernel.RouteTo(to.Addr())
	node, ok := joined.NodeOf(to.Addr())
	if ok && node != joined.Host() && (err != nil || !route.Local) {
		return f.seekNode(node, to, route)
	}
	if err != nil {
		logTCP(tcpNoLookup, err)
		return nil, &n.dialNoLookup, nil
	}
	if !route.Local {
		return nil, &n.dialNotLocal, nil
	}
	if !had.held {
		return nil, &n.dialNoSDP, nil
	}
	socket, ok, err := f.stack.kernel.Listening(to, route.Interface)
	if err != nil {
		logTCP(tcpNoLookup, err)
		return nil, &n.dialNoLookup, nil
	}
	var holder link.ID
	switch {
	case ok && had.sockets:
		holder, ok, err = joined.HolderOf(had.socket, port, socket.Cookie)
	case !ok && !had.sockets:
		ok = true // nothing listens by TCP, and the holder of the port is of network "sdp"
	default:
		ok = false
	}
	if err != nil || !ok {
		return nil, &n.dialNoSDP, nil
	}
	d := &destination{host: joined.Host(), port: port, tcp: true, socket: socket, holder: holder}
	d.source, d.to = route.Source, inetdiag.Destination(to.Addr())
	if zone := to.Addr().Zone(); zone != "" {
		d.zone, d.source = route.Interface, d.source.WithZone(zone)
	}
	return d, nil, nil
}

type counter = *atomic.Uint64
