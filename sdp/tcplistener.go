package sdp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/internal/inetdiag"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/listen"
)

// portTries is how often a port is looked for that is free for TCP and for network "sdp".
const portTries = 16

// Adopt makes a listener of one that the program was given, as by systemd or by another
// process, or that package net made. A TCP listener becomes a *TCPListener. Others are
// returned unchanged. The caller gives up ln, which is closed on error.
func (lc *ListenConfig) Adopt(ln net.Listener) (net.Listener, error) {
	tcp, ok := ln.(*net.TCPListener)
	if !ok {
		return ln, nil
	}
	f, done, err := lc.Fabric.useForTCP(context.Background())
	switch {
	case err == nil:
		defer done()
	case !tcpAlone(lc.Fabric, err):
		tcp.Close()
		return nil, opError(opListen, nil, tcp.Addr(), err)
	case lc.usersOnly():
		tcp.Close()
		return nil, opError(opListen, nil, tcp.Addr(), fmt.Errorf("%w, and no fabric can be opened: %w", errTCP, err))
	default:
		defaultFabric.counters.listenTCPOnly.Add(1)
		logAlone(err)
		return &TCPListener{tcp: tcp}, nil
	}
	port, err := f.stack.fabric.ClaimPort(tcp.Addr().(*net.TCPAddr).Port)
	if err != nil && !errors.Is(err, syscall.EADDRINUSE) {
		tcp.Close()
		return nil, opError(opListen, nil, tcp.Addr(), err)
	}
	return lc.serveTCP(f, tcp, port) // port is 0 if another listener has it
}

// listenTCP listens on network "tcp". It makes a TCP listener as net does, which
// connections of the fabric reach by SDP.
func (lc *ListenConfig) listenTCP(ctx context.Context, network, address string) (net.Listener, error) {
	f, done, err := lc.Fabric.useForTCP(ctx)
	switch {
	case err == nil:
		defer done()
	case !tcpAlone(lc.Fabric, err):
		return nil, &net.OpError{Op: opListen, Net: network, Err: cause(opListen, err)}
	case lc.usersOnly():
		err = fmt.Errorf("%w, and no fabric can be opened: %w", errTCP, err)
		return nil, &net.OpError{Op: opListen, Net: network, Err: err}
	default:
		f = nil
		logAlone(err)
	}
	for try := 1; ; try++ {
		ln, err := lc.net().Listen(ctx, network, address)
		if err != nil {
			return nil, err
		}
		tcp := ln.(*net.TCPListener)
		if f == nil {
			defaultFabric.counters.listenTCPOnly.Add(1)
			return &TCPListener{tcp: tcp}, nil
		}
		port := tcp.Addr().(*net.TCPAddr).Port
		_, err = f.stack.fabric.ClaimPort(port)
		if errors.Is(err, syscall.EADDRINUSE) && try < portTries && anyPort(ctx, address) {
			tcp.Close() // perhaps another port is free for network "sdp" too
			continue
		}
		if err == nil {
			return lc.serveTCP(f, tcp, port)
		}
		if !errors.Is(err, syscall.EADDRINUSE) {
			tcp.Close()
			return nil, opError(opListen, nil, tcp.Addr(), err)
		}
		return lc.serveTCP(f, tcp, 0) // network "sdp" has another listener on the port
	}
}

// usersOnly reports whether connections by TCP are refused, since they have no user.
func (lc *ListenConfig) usersOnly() bool { return lc.Allow != nil && !lc.AllowTCP }

// anyPort reports whether an address leaves the port to the system.
func anyPort(ctx context.Context, address string) bool {
	_, port, err := splitAddress(ctx, address)
	return err == nil && port == 0
}

// serveTCP makes a listener of a TCP listener. port is that of network "sdp", which
// is claimed, or 0.
func (lc *ListenConfig) serveTCP(f *Fabric, tcp *net.TCPListener, port int) (net.Listener, error) {
	s := &tcpHalf{fabric: f, listener: tcp, port: port, at: tcp.Addr().(*net.TCPAddr).AddrPort(), usersOnly: lc.usersOnly()}
	err := s.open(listen.Config{Backlog: lc.Backlog, Allow: lc.allow(f, tcp.Addr())})
	if err == nil {
		err = f.add(s)
	}
	if err != nil {
		s.Close()
		return nil, opError(opListen, nil, tcp.Addr(), err)
	}
	l := &TCPListener{tcp: tcp, sdp: s}
	if !f.stack.bubble {
		l.dropped = runtime.AddCleanup(l, (*tcpHalf).drop, s)
	}
	return l, nil
}

// TCPListener accepts connections of network "tcp", by SDP and by TCP. Accept returns a
// *Conn or a *net.TCPConn. Where the fabric could not be joined, as the package comment describes,
// it uses TCP alone. As with package net, the garbage collector closes a TCPListener that the program
// has dropped.
type TCPListener struct {
	tcp     *net.TCPListener // immutable
	sdp     *tcpHalf         // nil for TCP alone; immutable
	dropped runtime.Cleanup
}

// tcpHalf is the SDP side of a TCPListener. It is what the Fabric keeps, and does not refer
// to the TCPListener.
type tcpHalf struct {
	// Constant after open.
	fabric      *Fabric
	listener    *net.TCPListener
	port        int             // of network "sdp", which is claimed, or 0
	at          netip.AddrPort  // address of the TCP listener
	six         bool            // its socket is one of IPv6
	socket      inetdiag.Socket // its socket; zero if that cannot be identified
	published   bool
	usersOnly   bool // connections by TCP are refused
	withdrawing sync.Once
	queue       *listen.Listener
	tcp         *tcpQueue

	stopping sync.Once
	foreign  atomic.Pointer[netip.Addr] // the last address that isLocal found to be local
}

func (s *tcpHalf) open(config listen.Config) error {
	raw, err := s.listener.SyscallConn()
	if err != nil {
		return err
	}
	s.six = ofIPv6(raw)
	if s.tcp, err = newTCPQueue(s.listener); err != nil {
		return err
	}
	socket, err := inetdiag.SocketOf(raw)
	if err != nil {
		logTCP(tcpNoLookup, err)
		s.fabric.counters.listenTCPOnly.Add(1)
	} else {
		s.socket = socket
	}
	config.TCP = &listen.TCP{Socket: listen.Socket(s.socket), Addresses: s.addresses}
	s.queue = s.fabric.stack.listeners.Listen(s.port, config)
	if s.socket == (inetdiag.Socket{}) {
		return nil
	}
	err = s.fabric.stack.fabric.PublishSocket(int(s.at.Port()), s.socket.Cookie)
	s.published = err == nil
	return err
}

// Close closes the TCP listener and undoes open, as far as that got.
func (s *tcpHalf) Close() error {
	err := s.listener.Close()
	if errors.Is(err, net.ErrClosed) {
		return err
	}
	s.stop()
	if s.queue != nil {
		_ = s.queue.Close()
	}
	s.fabric.remove(s)
	return err
}

// drop closes a listener that is garbage, not on the collector's goroutine.
func (s *tcpHalf) drop() { go s.Close() }

// stop refuses new connections.
func (s *tcpHalf) stop() {
	s.stopping.Do(func() {
		f := s.fabric.stack.fabric
		s.withdraw()
		if s.queue != nil {
			s.queue.Stop()
		}
		if s.port != 0 {
			f.ReleasePort(s.port)
		}
		if s.tcp != nil {
			s.tcp.close()
		}
	})
}

// withdraw makes dials use TCP from now on.
func (s *tcpHalf) withdraw() {
	s.withdrawing.Do(func() {
		if s.published {
			s.fabric.stack.fabric.WithdrawSocket(int(s.at.Port()), s.socket.Cookie)
		}
	})
}

// addresses returns the addresses of the connection that a Hello asks for, or the reason
// why they cannot be this machine's and the dialling host's.
func (s *tcpHalf) addresses(p *link.Peer, m *hello.Hello) (a listen.Addresses, why hello.Reason) {
	local, remote := s.byNode(p)
	if m.TCP.Cookie != 0 {
		local = unmapped(m.TCP.Destination, m.TCP.DestinationZone)
		remote = unmapped(m.TCP.Source, m.TCP.SourceZone)
		switch f := s.fabric.stack.fabric; {
		case !s.isLocal(local) || m.To != s.at.Port():
			why = hello.NotListening
		case p.ID().Host() != f.Host():
			if node, ok := f.NodeOf(remote); !ok || node != p.ID().Host() {
				why = hello.UnknownSource
			}
		case remote != local && !s.isLocal(remote):
			why = hello.NotListening
		}
	}
	return listen.Addresses{
		Local:  netip.AddrPortFrom(local, s.at.Port()),
		Remote: netip.AddrPortFrom(remote, m.From),
	}, why
}

// byNode returns the addresses of a connection that was dialled by node and port.
func (s *tcpHalf) byNode(p *link.Peer) (local, remote netip.Addr) {
	f := s.fabric.stack.fabric
	local, remote = f.NodeAddr(f.Host()), f.NodeAddr(p.ID().Host())
	bound := s.at.Addr().Unmap()
	if bound.IsUnspecified() {
		return local, remote
	}
	if remote == local {
		remote = bound
	}
	return bound, remote
}

func unmapped(b [16]byte, zone uint32) netip.Addr {
	a := netip.AddrFrom16(b).Unmap()
	if zone != 0 {
		a = a.WithZone(strconv.Itoa(int(zone)))
	}
	return a
}

// isLocal reports whether a peer may use an address as one of this machine.
func (s *tcpHalf) isLocal(a netip.Addr) bool {
	if known := s.foreign.Load(); a.IsLoopback() || a == s.at.Addr().Unmap() || known != nil && *known == a {
		return true
	}
	route, err := s.fabric.stack.kernel.RouteTo(a)
	if err != nil || !route.Local {
		return false
	}
	s.foreign.Store(&a)
	return true
}

// Accept waits for a connection of either kind. As that of a Listener, it fails with
// syscall.ESTALE when the directory of the fabric was removed or replaced.
func (l *TCPListener) Accept() (net.Conn, error) {
	if l.sdp == nil {
		return l.tcp.Accept()
	}
	defer runtime.KeepAlive(l)
	s := l.sdp
	_ = s.fabric.stack.fabric.Lost() // which may stop the queue
	for {
		a, other, err := s.queue.AcceptOr(s.tcp.offers)
		if err != nil {
			return nil, l.opError(opAccept, err)
		}
		if other {
			c, err := s.tcp.take() // its errors are those of package net
			if c == nil && err == nil {
				continue // another process that has the socket has taken it
			}
			if err != nil {
				return nil, err
			}
			if s.usersOnly {
				s.refuseTCP(c)
				continue
			}
			s.fabric.counters.acceptTCP.Add(1)
			return c, nil
		}
		c, err := s.conn(a)
		if err != nil {
			return nil, l.opError(opAccept, err)
		}
		return c, nil
	}
}

// refuseTCP resets a connection by TCP.
func (s *tcpHalf) refuseTCP(c net.Conn) {
	s.fabric.stack.fabric.Forbid(fmt.Errorf("%v refuses a connection of %v: %w", s.at, c.RemoteAddr(), errTCP))
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}

func (s *tcpHalf) conn(a listen.Accepted) (net.Conn, error) {
	address := tcpAddr
	if s.six {
		address = tcpAddr6
	}
	table := s.fabric.stack.listeners
	c, err := newConn(s.fabric, a.Pair, address(a.Addresses.Local), address(a.Addresses.Remote), func() { table.Release(a.Addresses) })
	if err != nil {
		return nil, err
	}
	raceAcquire(c.pair)
	s.fabric.counters.acceptSDP.Add(1)
	return c, nil
}

func (l *TCPListener) opError(op string, err error) error {
	return &net.OpError{Op: op, Net: l.tcp.Addr().Network(), Addr: l.tcp.Addr(), Err: cause(op, err)}
}

// Close stops listening, wakes Accept, and resets the connections that wait for it.
func (l *TCPListener) Close() error {
	if l.sdp == nil {
		return l.tcp.Close()
	}
	l.dropped.Stop()
	return l.sdp.Close()
}

// Addr returns the *net.TCPAddr on which it listens.
func (l *TCPListener) Addr() net.Addr { return l.tcp.Addr() }

// SetDeadline makes Accept fail at t. The zero time means never.
func (l *TCPListener) SetDeadline(t time.Time) error {
	if l.sdp == nil {
		return l.tcp.SetDeadline(t)
	}
	if l.sdp.queue.Closed() {
		return l.opError(opSet, net.ErrClosed)
	}
	l.sdp.queue.SetDeadline(t)
	return nil
}

// Handover returns the file of the TCP listener, for a process that is to listen in place
// of this one. There net.FileListener makes a listener of it, and Adopt one of this
// package. This process accepts no new connections any more. Connections by TCP that wait
// are left to the other process. Accept still returns those by SDP, and after them
// net.ErrClosed. Then the caller closes the listener.
func (l *TCPListener) Handover() (*os.File, error) {
	defer runtime.KeepAlive(l)
	file, err := l.tcp.File()
	if err != nil {
		return nil, err
	}
	if l.sdp == nil {
		return file, l.tcp.Close()
	}
	l.sdp.stop()
	return file, nil
}

// SyscallConn returns that of the TCP listener.
func (l *TCPListener) SyscallConn() (syscall.RawConn, error) { return l.tcp.SyscallConn() }

// File returns a copy of the TCP listener's descriptor, as that of a *net.TCPListener
// does. Another process may accept by it. So from then on connections are made by TCP,
// and accepted by either process. Accept still returns connections by SDP that have come.
func (l *TCPListener) File() (*os.File, error) {
	defer runtime.KeepAlive(l)
	f, err := l.tcp.File()
	if err == nil && l.sdp != nil {
		l.sdp.withdraw()
	}
	return f, err
}
