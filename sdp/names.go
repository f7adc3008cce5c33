package sdp

import (
	"context"
	"net"
	"net/http/httptrace"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// nameDial is a dial of a name, which means several addresses. They are tried in the order
// and at the times at which net tries them, each by SDP first.
type nameDial struct {
	fabric  *Fabric
	tcp     *net.Dialer // without limits, which contexts have
	network string
	had     holding // of the port
}

// attempt is how the dial of an address has ended.
type attempt struct {
	conn net.Conn
	err  error
	why  counter // why it is TCP; nil of a connection by SDP
}

// dialName connects to one of the addresses of a name.
func (d *Dialer) dialName(ctx context.Context, f *Fabric, network, address string) (net.Conn, error) {
	n := d.net()
	limited, cancel := d.limit(ctx)
	defer cancel()
	port, had, why := f.portOf(limited, n, address)
	if why == nil && !had.held && !f.stack.fabric.HasNames() {
		why = &f.counters.dialNoSDP
	}
	if why != nil {
		why.Add(1)
		return n.DialContext(ctx, network, address)
	}
	name, _, _ := net.SplitHostPort(address)
	addrs, err := f.resolve(limited, n, network, name)
	if err != nil {
		f.counters.dialNotLocal.Add(1) // there is no address
		return nil, &net.OpError{Op: opDial, Net: network, Err: err}
	}
	to := make([]netip.AddrPort, len(addrs))
	for i, a := range addrs {
		if a.Is6() && a.IsLinkLocalUnicast() { // its zone is not known here
			f.counters.dialNotLocal.Add(1)
			return n.DialContext(ctx, network, address)
		}
		to[i] = netip.AddrPortFrom(a, uint16(port))
	}
	delay := n.FallbackDelay
	n.Timeout, n.Deadline = 0, time.Time{}
	a := (&nameDial{fabric: f, tcp: n, network: network, had: had}).dial(limited, to, delay)
	if a.why != nil {
		a.why.Add(1)
	} else {
		f.counters.dialSDP.Add(1)
	}
	return a.conn, a.err
}

// portOf is the port of an address, and what the fabric has there. Without a port it returns
// the counter of why, and the rest is left to net.
func (f *Fabric) portOf(ctx context.Context, n *net.Dialer, address string) (int, holding, counter) {
	name, service, err := net.SplitHostPort(address)
	if err != nil || name == "" {
		return 0, holding{}, &f.counters.dialNotLocal
	}
	port, err := resolver(n).LookupPort(ctx, "tcp", service)
	if err != nil || port == 0 {
		return 0, holding{}, &f.counters.dialNotLocal
	}
	return port, f.holding(port), nil
}

func resolver(n *net.Dialer) *net.Resolver {
	if n.Resolver != nil {
		return n.Resolver
	}
	return net.DefaultResolver
}

// resolved is what localhost has been found to mean.
type resolved struct {
	network string
	addrs   []netip.Addr
	at      time.Time
}

// localhostKept is how long what localhost means is kept. Package net keeps it for 5 s
// where it is in the file of hosts.
const localhostKept = time.Second

// resolve finds the addresses of a name that are of a network, in net's order.
func (f *Fabric) resolve(ctx context.Context, n *net.Dialer, network, name string) ([]netip.Addr, error) {
	keep := name == "localhost" && n.Resolver == nil && httptrace.ContextClientTrace(ctx) == nil
	now := time.Now()
	if known := f.stack.localhost.Load(); keep && known != nil && known.network == network && ctx.Err() == nil {
		if age := now.Sub(known.at); 0 <= age && age < localhostKept {
			return known.addrs, nil
		}
	}
	ips, err := resolver(n).LookupIP(forNames(ctx), "ip"+strings.TrimPrefix(network, "tcp"), name)
	if err != nil {
		return nil, err
	}
	addrs := make([]netip.Addr, 0, len(ips))
	for _, ip := range ips {
		if a, ok := netip.AddrFromSlice(ip); ok {
			addrs = append(addrs, a.Unmap())
		}
	}
	if keep {
		f.stack.localhost.Store(&resolved{network, addrs, now})
	}
	return addrs, nil
}

// fallbackDelay is how long the addresses of the first one's family have until the others
// are tried too, unless net.Dialer.FallbackDelay says it.
const fallbackDelay = 300 * time.Millisecond

// dial tries the addresses of the first one's family, and, once these have failed or taken
// too long, the others. A negative delay means all in turn.
func (d *nameDial) dial(ctx context.Context, to []netip.AddrPort, delay time.Duration) attempt {
	var first, others []netip.AddrPort
	for _, a := range to {
		if d.network != "tcp" || delay < 0 || a.Addr().Is4() == to[0].Addr().Is4() {
			first = append(first, a)
		} else {
			others = append(others, a)
		}
	}
	if len(others) == 0 {
		return d.inTurn(ctx, first)
	}
	if delay == 0 {
		delay = fallbackDelay
	}
	firstCtx, cancelFirst := context.WithCancel(ctx)
	defer cancelFirst()
	othersCtx, cancelOthers := context.WithCancel(ctx)
	defer cancelOthers()
	ended := make(chan attempt, 1)
	timer := time.AfterFunc(delay, func() {
		b := d.inTurn(othersCtx, others)
		if b.err == nil {
			cancelFirst()
		}
		ended <- b
	})
	a := d.inTurn(firstCtx, first)
	if a.err == nil || forbidden(a.err) {
		cancelOthers()
	}
	var b attempt
	switch {
	case !timer.Stop():
		b = <-ended
	case a.err == nil || forbidden(a.err):
		return a
	default:
		b = d.inTurn(othersCtx, others)
	}
	if a.err != nil && !forbidden(a.err) && (b.err == nil || forbidden(b.err)) {
		return b
	}
	if b.conn != nil {
		b.conn.Close() // it lost
	}
	return a
}

// leastShare is what an address is given at least of the time for several.
const leastShare = 2 * time.Second

// inTurn tries one address after the other, each with its share of the time that is left.
// The error is that of the first one, or that the time is over, or that of one which was
// refused because of a user: then no further one is tried.
func (d *nameDial) inTurn(ctx context.Context, to []netip.AddrPort) attempt {
	var failed error
	var a attempt
	for i, addr := range to {
		over := ctx.Err() != nil
		a = d.withShare(ctx, len(to)-i, addr)
		if a.err == nil || forbidden(a.err) {
			return a
		}
		if failed == nil || over {
			failed = a.err
		}
		if over {
			break
		}
	}
	a.err = failed
	return a
}

// withShare tries an address, the first of several that are left.
func (d *nameDial) withShare(ctx context.Context, left int, to netip.AddrPort) attempt {
	if deadline, ok := ctx.Deadline(); ok {
		all := time.Until(deadline)
		if share := max(all/time.Duration(left), min(all, leastShare)); share < all {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, share)
			defer cancel()
		}
	}
	return d.try(ctx, to)
}

// try connects to an address, by SDP or else by TCP.
func (d *nameDial) try(ctx context.Context, to netip.AddrPort) attempt {
	c, why, err := d.fabric.dialAddr(ctx, d.network, to, d.had)
	if c != nil {
		return attempt{conn: c}
	}
	if err != nil {
		return attempt{err: err, why: why}
	}
	network := d.network
	if to.Addr() == netip.IPv6Unspecified() {
		network = "tcp6" // with "tcp" net tries IPv4 too
	}
	t, err := d.tcp.DialContext(ctx, network, net.JoinHostPort(to.Addr().String(), strconv.Itoa(int(to.Port()))))
	if op, ok := err.(*net.OpError); ok {
		op.Net = d.network
	}
	return attempt{conn: t, err: err, why: why}
}
