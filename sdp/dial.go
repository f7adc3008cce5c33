package sdp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/dial"
	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/internal/inetdiag"
	"github.com/ntbnet/ntbnet/ring"
)

// Dialer dials with options. Dial uses the zero Dialer.
type Dialer struct {
	// Timeout limits a dial. 0 means no limit of its own. As with package net, that
	// is about two minutes.
	Timeout time.Duration
	// Deadline is the time at which a dial fails; zero means none.
	Deadline time.Time
	// Host is the Host whose fabric is used; nil means the default one.
	Host *Host
	// TCP dials where network "tcp" uses TCP, resolves names, and dials networks that
	// are not this package's. Nil means a zero net.Dialer. Timeout and Deadline above
	// apply to it too. If it has LocalAddr, Control or ControlContext, which need a
	// socket, network "tcp" is TCP.
	TCP *net.Dialer
}

// Dial connects to "host:port". The networks are "sdp", and "tcp", "tcp4", "tcp6" as the
// package comment describes. Others are passed to package net. Over SDP it gives up
// after 127 s.
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
// memory for another connection, it fails with ENOBUFS, at once if the dial has no
// deadline, and otherwise by the deadline.
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
		return d.dialTCP(ctx, network, address)
	}
	return d.net().DialContext(ctx, network, address)
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
	c, err := h.dial(ctx, &destination{host: host, port: port})
	if err != nil {
		return nil, opError(opDial, nil, remote, err)
	}
	return c, nil
}

// findHost finds a host of the fabric by name. It asks the name server if
// necessary.
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
	// maxLinks is how many links a dial tries if they go down during it.
	maxLinks = 3
	// maxRedirects is how often a dial is redirected to another process of a host.
	maxRedirects = 4
	// redirectWait is how long a dial waits for that process to be reached.
	redirectWait = 2 * time.Second
)

// destination is where a dial leads.
type destination struct {
	host, port int
	tcp        bool // network "tcp": addresses are those of TCP
	// socket identifies the listener's TCP socket. It is zero if the listener is
	// found by host and port.
	socket     inetdiag.Socket
	holder     ring.ID    // node that has the socket, as found; 0 once it was asked
	source, to netip.Addr // of network "tcp"; zero if a node is dialled by its name
	zone       int        // of both addresses, as the number of an interface
}

// dial connects to the process of a listener, whichever that is.
func (h *Host) dial(ctx context.Context, d *destination) (*Conn, error) {
	_, patient := ctx.Deadline()
	limited := &lateTimer{Context: ctx, end: time.Now().Add(connectTimeout)}
	defer limited.stop()
	ctx = limited
	var err error
	for range maxLinks {
		var c *Conn
		c, err = h.dialOnce(ctx, d, patient)
		if err == nil {
			return c, nil
		}
		if !errors.Is(err, dial.ErrLinkDown) {
			return nil, err
		}
	}
	if d.host != h.stack.fabric.Host() {
		return nil, fmt.Errorf("%w: %w", err, syscall.EHOSTUNREACH)
	}
	// Each process that held the port went away.
	return nil, fmt.Errorf("%w: %w", err, syscall.ECONNREFUSED)
}

// lateTimer is a context that ends at a time too. The timer is made when Done is first
// called: a dial that is answered at once has none, and so wakes no thread to wait for it.
type lateTimer struct {
	context.Context // the caller's
	end             time.Time
	once            sync.Once
	made            atomic.Pointer[timer]
}

// timer is a context with the means to end it.
type timer struct {
	context.Context
	cancel context.CancelFunc
}

func (l *lateTimer) Deadline() (time.Time, bool) {
	if d, ok := l.Context.Deadline(); ok && d.Before(l.end) {
		return d, true
	}
	return l.end, true
}

func (l *lateTimer) Done() <-chan struct{} {
	l.once.Do(func() {
		ctx, cancel := context.WithDeadline(l.Context, l.end)
		l.made.Store(&timer{ctx, cancel})
	})
	return l.made.Load().Done()
}

func (l *lateTimer) Err() error {
	if t := l.made.Load(); t != nil {
		return t.Err()
	}
	if err := l.Context.Err(); err != nil || time.Now().Before(l.end) {
		return err
	}
	return context.DeadlineExceeded
}

// stop frees the timer. Nobody waits any more.
func (l *lateTimer) stop() {
	if t := l.made.Load(); t != nil {
		t.cancel()
	}
}

// holder returns the process of this host that has the listener.
func (h *Host) holder(d *destination) (ring.ID, bool, error) {
	if id := d.holder; id != 0 {
		d.holder = 0
		return id, true, nil
	}
	if d.socket.Cookie != 0 {
		return h.stack.fabric.SocketHolder(d.port, d.socket.Cookie)
	}
	return h.stack.fabric.Holder(d.port)
}

func (h *Host) dialOnce(ctx context.Context, d *destination, patient bool) (*Conn, error) {
	f := h.stack.fabric
	if d.host != f.Host() {
		return h.dialFar(ctx, d, patient)
	}
	id, ok, err := h.holder(d)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, syscall.ECONNREFUSED
	}
	peer, err := f.Peer(ctx, id)
	if err != nil {
		if _, ok, _ := h.holder(d); !ok {
			return nil, syscall.ECONNREFUSED // it has just gone
		}
		return nil, err
	}
	c, err := h.dialPeer(ctx, peer, d, patient)
	if elsewhere := new(dial.ElsewhereError); errors.As(err, &elsewhere) {
		err = fmt.Errorf("%w: %w", err, dial.ErrLinkDown) // it has just passed to another process
	}
	return c, err
}

// dialFar connects to a port of another host. It first asks the process there that
// owns the links. That one says if another process holds the port.
func (h *Host) dialFar(ctx context.Context, d *destination, patient bool) (*Conn, error) {
	f := h.stack.fabric
	peer, err := f.Owner(ctx, d.host)
	if err != nil {
		return nil, err
	}
	for range maxRedirects {
		c, err := h.dialPeer(ctx, peer, d, patient)
		elsewhere := new(dial.ElsewhereError)
		if !errors.As(err, &elsewhere) {
			return c, err
		}
		// That process may be about to end, or its link to the owner may not be up
		// yet.
		soon, cancel := context.WithTimeout(ctx, redirectWait)
		peer, err = f.Peer(soon, ring.MakeID(d.host, elsewhere.Process))
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

// dialPeer connects to a listener of a process.
func (h *Host) dialPeer(ctx context.Context, peer *ring.Peer, d *destination, patient bool) (*Conn, error) {
	if d.tcp {
		return h.dialPeerTCP(ctx, peer, d, patient)
	}
	from := h.stack.dialPort()
	m := hello.Hello{Version: hello.Version, From: uint16(from), To: uint16(d.port)}
	pair, err := peer.Session(ring.ServiceSDP).(*session).dials.Dial(ctx, m, patient)
	if err != nil {
		return nil, err
	}
	return newConn(h, pair, &Addr{h.thisHost(), from}, &Addr{h.hostName(peer.ID().Host()), d.port}, nil)
}

// maxPorts is how many ports a dial of network "tcp" tries if they are in use at
// the listener, by connections of other processes.
const maxPorts = 64

// dialPeerTCP is dialPeer for network "tcp".
func (h *Host) dialPeerTCP(ctx context.Context, peer *ring.Peer, d *destination, patient bool) (*Conn, error) {
	for range maxPorts {
		from, ok := h.stack.takePort()
		if !ok {
			break
		}
		pair, err := peer.Session(ring.ServiceSDP).(*session).dials.Dial(ctx, d.hello(from), patient)
		if err == nil {
			local, remote := d.addresses(h, peer, from)
			return newConn(h, pair, tcpAddr(local), tcpAddr(remote), func() { h.stack.releasePort(from) })
		}
		h.stack.releasePort(from)
		if !errors.Is(err, dial.ErrAddressTaken) {
			return nil, err
		}
	}
	return nil, fmt.Errorf("no port is free for the dialling end: %w", syscall.EADDRNOTAVAIL)
}

// hello returns the Hello for a connection from a port.
func (d *destination) hello(from uint16) hello.Hello {
	m := hello.Hello{Version: hello.Version, Network: hello.OverTCP, From: from, To: uint16(d.port)}
	if d.socket.Cookie != 0 {
		m.TCP = hello.TCP{
			Cookie: d.socket.Cookie, Namespace: d.socket.Namespace,
			Source: d.source.As16(), Destination: d.to.As16(),
			SourceZone: uint32(d.zone), DestinationZone: uint32(d.zone),
		}
	}
	return m
}

// addresses returns the addresses of a connection from a port.
func (d *destination) addresses(h *Host, peer *ring.Peer, from uint16) (local, remote netip.AddrPort) {
	source, to := d.source, d.to
	if !to.IsValid() {
		f := h.stack.fabric
		source, to = f.NodeAddr(f.Host()), f.NodeAddr(peer.ID().Host())
	}
	return netip.AddrPortFrom(source, from), netip.AddrPortFrom(to, uint16(d.port))
}
