package sdp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/dial"
	"github.com/ntbnet/ntbnet/internal/fabric"
	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/internal/inetdiag"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/spec"
	"github.com/ntbnet/ntbnet/ntb"
)

// Dialer dials with options. Dial uses the zero Dialer.
type Dialer struct {
	// Timeout limits a dial. 0 means no limit of its own. As with package net, that
	// is about two minutes.
	Timeout time.Duration
	// Deadline is the time at which a dial fails; zero means none.
	Deadline time.Time
	// Fabric is the one to use; nil means the default one.
	Fabric *Fabric
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
	f, done, err := d.Fabric.use(ctx)
	if err != nil {
		return nil, opError(opDial, nil, remote, err)
	}
	defer done()
	host, err := f.stack.fabric.LookupHost(ctx, name)
	if end := ctx.Err(); end != nil {
		err = end
	}
	if err != nil {
		return nil, opError(opDial, nil, remote, err)
	}
	c, err := f.dial(ctx, destination{host: host, port: port})
	if err != nil {
		return nil, opError(opDial, nil, remote, err)
	}
	return c, nil
}

const (
	// connectTimeout ends a dial that has no other limit.
	connectTimeout = 127 * time.Second
	// redirectWait is how long a dial waits for a process to which it was redirected.
	redirectWait = 2 * time.Second
)

// destination is where a dial leads.
type destination struct {
	host, port int
	tcp        bool // network "tcp": addresses are those of TCP
	// socket identifies the listener's TCP socket. It is zero if the listener is
	// found by host and port.
	socket     inetdiag.Listener
	holder     link.ID    // process of this host that has the socket, as found; 0 if it is to be found
	source, to netip.Addr // of network "tcp"; zero if a node is dialled by its name
	zone       int        // of both addresses, as the number of an interface
	asks       bool       // the other host finds the listener's TCP socket by both addresses
}

// dialing is a dial that is under way. One goroutine uses it.
type dialing struct {
	destination // without the holder once that was asked
	fabric      *Fabric
	until       time.Time // when the dial ends if its context does not end it before
	patient     time.Time // until when it waits for who takes the port over; zero before it does
	from        uint16    // port that a dial which asks keeps when it is redirected; else 0
}

// dial connects to the listener at a destination. Its error says what could be found out of the listener.
func (f *Fabric) dial(ctx context.Context, to destination) (*Conn, error) {
	d := &dialing{destination: to, fabric: f, until: time.Now().Add(connectTimeout)}
	c, err := d.try(ctx)
	if err == nil {
		return c, nil
	}
	if d.from != 0 {
		f.stack.releasePort(d.from)
	}
	if joined := f.stack.fabric; d.host == joined.Host() && errors.Is(err, context.DeadlineExceeded) {
		if id, ok, e := d.findHolder(); ok && e == nil {
			err = joined.Why(id, err)
		}
	}
	return nil, spec.Advise(err)
}

// try reaches the process that has the port and opens
// a connection there. After a failure it does again what dial.Retry says, until ctx ends.
func (d *dialing) try(ctx context.Context) (*Conn, error) {
	_, patient := ctx.Deadline()
	retry := dial.Retry{Far: d.host != d.fabric.stack.fabric.Host(), Patient: patient}
	var peer *link.Peer
	var next dial.Next
	for {
		var c *Conn
		var err error
		if next.Step != dial.Open {
			peer, err = d.reach(ctx, next.Process)
			if ended(err) {
				err = fmt.Errorf("%w: %v", dial.ErrLinkDown, err)
			}
			if err != nil && !errors.Is(err, dial.ErrLinkDown) {
				return nil, err // there is no process to open a connection to
			}
		}
		if err == nil {
			c, err = d.open(ctx, peer)
		}
		if err == nil {
			return c, nil
		}
		if errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) {
			return nil, retry.Ended(err)
		}
		if next, err = retry.After(err); err != nil {
			return nil, explainForbidden(err)
		}
		if !time.Now().Before(d.until) {
			return nil, retry.Ended(context.DeadlineExceeded)
		}
		if err = sleep(ctx, next.Pause); err != nil {
			return nil, retry.Ended(err)
		}
	}
}

// ended reports whether an error says that a process has ended, or is about to, while a link to it
// was being made.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, link.ErrDown)
}

// sleep pauses, and returns the error of ctx if that ends before.
func sleep(ctx context.Context, pause time.Duration) error {
	if pause == 0 {
		return ctx.Err()
	}
	select {
	case <-time.After(pause):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// findHolder returns the process of this host that has the listener.
func (d *dialing) findHolder() (link.ID, bool, error) {
	if id := d.holder; id != 0 {
		d.holder = 0
		return id, true, nil
	}
	if d.socket.Cookie != 0 {
		return d.fabric.stack.fabric.SocketHolder(d.port, d.socket.Cookie)
	}
	return d.fabric.stack.fabric.Holder(d.port)
}

// reach returns the link to the process that has the listener. On another host that is
// the given process or, if it is 0, the one that owns the links: it knows which other one
// has the port.
func (d *dialing) reach(ctx context.Context, process int) (*link.Peer, error) {
	joined := d.fabric.stack.fabric
	if d.host == joined.Host() {
		return d.reachHere(ctx)
	}
	ctx, cancel := context.WithDeadline(ctx, d.until)
	defer cancel()
	if process == 0 {
		return joined.Owner(ctx, d.host)
	}
	// That process may be about to end, or its link to the owner may not be up yet.
	soon, cancel := context.WithTimeout(ctx, redirectWait) // no later than until
	defer cancel()
	peer, err := joined.Peer(soon, link.MakeID(d.host, process), nil)
	if ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %v: %w", &dial.RedirectError{Process: process}, err, dial.ErrLinkDown)
	}
	return peer, err
}

// handoverPause is how long a dial waits before it looks again for the holder of a port that was
// handed over.
const handoverPause = 5 * time.Millisecond

// reachHere is reach on this host. For a port that was handed over it waits.
func (d *dialing) reachHere(ctx context.Context) (*link.Peer, error) {
	s := d.fabric.stack
	for {
		peer, err := d.tryHere(ctx)
		if err == nil || d.tcp || !errors.Is(err, syscall.ECONNREFUSED) {
			return peer, err
		}
		now := time.Now()
		if d.patient.IsZero() {
			d.patient = now.Add(fabric.HandoverTime)
		}
		if now.After(d.patient) || !s.fabric.HandedOver(d.port, s.holderOf(d.port)) {
			return nil, fmt.Errorf("%w%s", err, s.fabric.Elsewhere())
		}
		if err := sleep(ctx, handoverPause); err != nil {
			return nil, err
		}
	}
}

// tryHere is reachHere without the wait.
func (d *dialing) tryHere(ctx context.Context) (*link.Peer, error) {
	s := d.fabric.stack
	id, ok, err := d.findHolder()
	if err != nil {
		return nil, err
	}
	if !ok && d.tcp {
		return nil, syscall.ECONNREFUSED
	}
	if !ok { // perhaps somebody listens in another user's
		return nil, fmt.Errorf("%w: nobody listens there in %s", os.NewSyscallError("connect", syscall.ECONNREFUSED), s.fabric.Whose())
	}
	var users []int // all
	if d.socket.Cookie != 0 {
		users = mayServe(d.socket.UID)
	}
	peer, err := s.fabric.Peer(ctx, id, users)
	if errors.Is(err, fabric.ErrOtherUser) {
		return nil, fmt.Errorf("%w: %w", errNotItsServer, err)
	}
	if err != nil {
		if _, ok, _ := d.findHolder(); !ok {
			return nil, syscall.ECONNREFUSED // it has just gone
		}
		return nil, err
	}
	if !d.tcp {
		s.heldBy(d.port, peer.Caps().User)
	}
	return peer, nil
}

// heldBy notes the user at whom a dial has reached a port of this host. Marks of this process's own
// user count for all ports.
func (s *stack) heldBy(port int, who *ntb.User) {
	if who == nil || who.UID == os.Geteuid() {
		return
	}
	if uid, ok := s.holders.Load(port); !ok || uid != who.UID {
		s.holders.Store(port, who.UID)
	}
}

// holderOf returns the user whom heldBy has noted, or -1.
func (s *stack) holderOf(port int) int {
	if uid, ok := s.holders.Load(port); ok {
		return uid.(int)
	}
	return -1
}

// open opens a connection to a listener of a process.
func (d *dialing) open(ctx context.Context, peer *link.Peer) (*Conn, error) {
	f, dials := d.fabric, peer.Handler(link.ServiceSDP).(*handler).dials
	if !d.tcp {
		from := f.stack.dialPort()
		pair, err := dials.Dial(ctx, d.until, hello.Hello{Version: hello.Version, From: uint16(from), To: uint16(d.port)})
		if err != nil {
			return nil, err
		}
		return newConn(f, pair, &Addr{f.thisHost(), from}, &Addr{f.hostName(peer.ID().Host()), d.port}, nil)
	}
	from, ok := d.from, d.from != 0
	if !ok {
		from, ok = f.stack.takePort()
	}
	if !ok {
		return nil, fmt.Errorf("no port is free for the dialling endpoint: %w", syscall.EADDRNOTAVAIL)
	}
	d.from = 0
	pair, err := dials.Dial(ctx, d.until, d.hello(from))
	if d.keepsPort(err) {
		d.from = from
		return nil, err
	}
	if err != nil {
		f.stack.releasePort(from)
		return nil, err
	}
	local, remote := d.addresses(f, peer, from)
	return newConn(f, pair, tcpAddr(local), tcpAddr(remote), func() { f.stack.releasePort(from) })
}

// hello returns the Hello for a connection from a port.
func (d *destination) hello(from uint16) hello.Hello {
	m := hello.Hello{Version: hello.Version, Network: hello.OverTCP, From: from, To: uint16(d.port)}
	if d.socket.Cookie != 0 || d.asks {
		m.TCP = hello.TCP{
			Cookie: d.socket.Cookie, Namespace: d.socket.Namespace,
			Source: d.source.As16(), Destination: d.to.As16(),
			SourceZone: uint32(d.zone), DestinationZone: uint32(d.zone),
		}
	}
	return m
}

// addresses returns the addresses of a connection from a port.
func (d *destination) addresses(f *Fabric, peer *link.Peer, from uint16) (local, remote netip.AddrPort) {
	source, to := d.source, d.to
	if !to.IsValid() {
		joined := f.stack.fabric
		source, to = joined.NodeAddr(joined.Host()), joined.NodeAddr(peer.ID().Host())
	}
	return netip.AddrPortFrom(source, from), netip.AddrPortFrom(to, uint16(d.port))
}
