package sdp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/dial"
	"github.com/ntbnet/ntbnet/ring"
)

// Dialer dials with options. The zero Dialer is that of Dial.
type Dialer struct {
	// Timeout limits a dial; 0 means no limit of its own, as in package net:
	// about two minutes.
	Timeout time.Duration
	// Deadline is the time at which a dial fails; zero means none.
	Deadline time.Time
	// Host is whose fabric is used; nil means the default one.
	Host *Host
	// TCP dials where network "tcp" takes TCP; nil means a zero net.Dialer.
	// Timeout and Deadline above count for it too.
	TCP *net.Dialer
}

// Dial connects to "host:port". Networks are "sdp", and "tcp", "tcp4", "tcp6" as
// the package comment says. Over SDP it gives up after 127 s.
func Dial(network, address string) (net.Conn, error) {
	return (&Dialer{}).Dial(network, address)
}

// DialTimeout is Dial with a limit.
func DialTimeout(network, address string, timeout time.Duration) (net.Conn, error) {
	return (&Dialer{Timeout: timeout}).Dial(network, address)
}

// DialContext is Dial that ends with ctx.
func DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	return (&Dialer{}).DialContext(ctx, network, address)
}

// Dial is DialContext without a context.
func (d *Dialer) Dial(network, address string) (net.Conn, error) {
	return d.DialContext(context.Background(), network, address)
}

// DialContext connects to "host:port". ctx limits the dial, not the connection.
//
// If the listener's backlog is full, it waits as with TCP. If a window has no
// memory for another connection, it fails with ENOBUFS, at once if the dial has
// no deadline, and by the deadline if it has one.
func (d *Dialer) DialContext(ctx context.Context, network, address string) (net.Conn, error) {
	if !d.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, d.Deadline)
		defer cancel()
	}
	if d.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d.Timeout)
		defer cancel()
	}
	switch network {
	case Network:
		return d.dialSDP(ctx, address)
	case "tcp", "tcp4", "tcp6":
		return d.dialEither(ctx, network, address)
	}
	return nil, &net.OpError{Op: opDial, Net: network, Err: net.UnknownNetworkError(network)}
}

func (d *Dialer) dialSDP(ctx context.Context, address string) (net.Conn, error) {
	name, port, err := splitAddress(ctx, address)
	if err == nil && port == 0 {
		err = fmt.Errorf("port 0 cannot be dialled: %w", syscall.ECONNREFUSED)
	}
	if err != nil {
		return nil, opError(opDial, nil, nil, err)
	}
	remote := &Addr{name, port}
	h, done, err := d.Host.use()
	if err != nil {
		return nil, opError(opDial, nil, remote, err)
	}
	defer done()
	host, ok := h.findHost(ctx, name)
	if !ok {
		err := fmt.Errorf("no node %q in this fabric, which has %s: %w", name, h.stack.fabric.HostNames(), syscall.EHOSTUNREACH)
		return nil, opError(opDial, nil, remote, err)
	}
	c, err := h.dialPort(ctx, host, port)
	if err != nil {
		return nil, opError(opDial, nil, remote, err)
	}
	return c, nil
}

// findHost finds a host of the fabric by name, asking the name server if need be.
func (h *Host) findHost(ctx context.Context, name string) (host int, ok bool) {
	f := h.stack.fabric
	if host, ok := f.FindHost(name); ok {
		return host, true
	}
	if net.ParseIP(name) != nil || strings.HasPrefix(name, "node") && !strings.Contains(name, ".") {
		return 0, false
	}
	ips, err := net.DefaultResolver.LookupHost(ctx, name)
	if err != nil {
		return 0, false
	}
	for _, ip := range ips {
		if f.IsLocal(ip) {
			return f.Host(), true
		}
	}
	return 0, false
}

const (
	// connectTimeout ends a dial that has no other limit.
	connectTimeout = 127 * time.Second
	// maxLinks is how many links a dial tries that go down under it.
	maxLinks = 3
	// maxRedirects is how often it is sent on to another process of a host.
	maxRedirects = 4
	// redirectWait is how long it waits for that process to be reached.
	redirectWait = 2 * time.Second
)

// dialPort connects to whichever process of a host holds port.
func (h *Host) dialPort(ctx context.Context, host, port int) (*Conn, error) {
	_, patient := ctx.Deadline()
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	var err error
	for range maxLinks {
		var c *Conn
		c, err = h.dialOnce(ctx, host, port, patient)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, dial.ErrLinkDown) {
			return nil, err
		}
	}
	if host != h.stack.fabric.Host() {
		return nil, fmt.Errorf("%w: %w", err, syscall.EHOSTUNREACH)
	}
	// Each process that held the port went away.
	return nil, fmt.Errorf("%w: %w", err, syscall.ECONNREFUSED)
}

func (h *Host) dialOnce(ctx context.Context, host, port int, patient bool) (*Conn, error) {
	f := h.stack.fabric
	if host != f.Host() {
		return h.dialFar(ctx, host, port, patient)
	}
	id, ok, err := f.Holder(port)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, syscall.ECONNREFUSED
	}
	peer, err := f.Peer(ctx, id)
	if err != nil {
		if _, ok, _ := f.Holder(port); !ok {
			return nil, syscall.ECONNREFUSED // it has just gone
		}
		return nil, err
	}
	c, err := h.dialPeer(ctx, peer, port, patient)
	if elsewhere := new(dial.ElsewhereError); errors.As(err, &elsewhere) {
		err = fmt.Errorf("%w: %w", err, dial.ErrLinkDown) // it has just changed hands
	}
	return c, err
}

// dialFar connects to a port of another host. The process there that owns the
// links is asked first; it says if another one holds the port.
func (h *Host) dialFar(ctx context.Context, host, port int, patient bool) (*Conn, error) {
	f := h.stack.fabric
	peer, err := f.Owner(ctx, host)
	if err != nil {
		return nil, err
	}
	for range maxRedirects {
		c, err := h.dialPeer(ctx, peer, port, patient)
		elsewhere := new(dial.ElsewhereError)
		if !errors.As(err, &elsewhere) {
			return c, err
		}
		// That process may be about to end, or its link to the owner to begin.
		soon, cancel := context.WithTimeout(ctx, redirectWait)
		peer, err = f.Peer(soon, ring.MakeID(host, elsewhere.Process))
		cancel()
		if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("%w: %v: %w", elsewhere, err, dial.ErrLinkDown)
		}
		if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("the port changed hands %d times: %w", maxRedirects, dial.ErrLinkDown)
}

// dialPeer connects to a port of a process.
func (h *Host) dialPeer(ctx context.Context, peer *ring.Peer, port int, patient bool) (*Conn, error) {
	from := h.stack.dialPort()
	pair, err := peer.Session(ring.ServiceSDP).(*session).dials.Dial(ctx, uint16(from), uint16(port), patient)
	if err != nil {
		return nil, err
	}
	return newConn(h, pair, &Addr{h.thisHost(), from}, &Addr{h.hostName(peer.ID().Host()), port})
}

// dialEither is network "tcp": SDP if the host is here and listens by SDP on the
// port, else TCP. Why it is TCP is counted.
func (d *Dialer) dialEither(ctx context.Context, network, address string) (net.Conn, error) {
	c, why, sdpErr := d.trySDP(ctx, address)
	if c != nil || why == nil && sdpErr != nil {
		return c, sdpErr
	}
	if why != nil {
		why.Add(1)
	}
	var tcp net.Dialer
	if d.TCP != nil {
		tcp = *d.TCP
	}
	c, err := tcp.DialContext(ctx, network, address)
	if unknown := new(net.DNSError); sdpErr != nil && (errors.As(err, &unknown) || ctx.Err() != nil) {
		return nil, sdpErr // a node's name is mostly unknown to the name server
	}
	return c, err
}

// trySDP returns a connection, or the counter of why there is none, with the error
// if the host is another node of the fabric. An error without a counter is final.
// An address that is none is left to TCP, whose error is the one that users know.
func (d *Dialer) trySDP(ctx context.Context, address string) (net.Conn, counter, error) {
	name, port, err := splitAddress(ctx, address)
	if err != nil || port == 0 {
		return nil, nil, nil
	}
	h, done, err := d.Host.use()
	if err != nil && d.Host != nil {
		return nil, nil, opError(opDial, nil, &Addr{name, port}, err)
	}
	if err != nil {
		return nil, &defaultHost.counters.dialNoFabric, nil
	}
	defer done()
	f := h.stack.fabric
	host, found := f.FindHost(name)
	if found && host != f.Host() {
		c, err := h.dialPort(ctx, host, port)
		if err != nil {
			return nil, &h.counters.dialSDPFailed, opError(opDial, nil, &Addr{name, port}, err)
		}
		h.counters.dialSDP.Add(1)
		return c, nil, nil
	}
	// The port is looked up before the name server is asked: it is cheap, and
	// mostly the answer is no.
	if _, ok, err := f.Holder(port); err != nil || !ok {
		return nil, &h.counters.dialNoSDP, nil
	}
	if !found {
		host, found = h.findHost(ctx, name)
	}
	if !found {
		return nil, &h.counters.dialNotLocal, nil
	}
	c, err := h.dialPort(ctx, host, port)
	if err != nil {
		return nil, &h.counters.dialSDPFailed, nil
	}
	h.counters.dialSDP.Add(1)
	return c, nil, nil
}

type counter interface{ Add(uint64) uint64 }
