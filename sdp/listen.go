package sdp

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/listen"
)

// ListenConfig listens with options. Listen uses the zero ListenConfig.
type ListenConfig struct {
	// Backlog is how many connections may wait for Accept; 0 means 4096.
	Backlog int
	// Fabric is the one to use; nil means the default one.
	Fabric *Fabric
	// TCP listens where network "tcp" does, and on networks that are not this package's.
	// Nil means a zero net.ListenConfig.
	TCP *net.ListenConfig

	// Allow, if not nil, returns an error for a user whose connections are refused. Then
	// the dial fails with EACCES, and names the user that it has; the error is logged here,
	// once a second at most, and counted (FabricStats.Refused). Allow is called for each
	// connection, from several goroutines at the same time.
	//
	// It is not asked about a process whose user the kernel does not know (see Conn.Peer), nor
	// about connections by TCP: these are refused.
	Allow func(Peer) error
	// AllowUnknown accepts, where Allow is set, processes whose user the kernel does not know.
	AllowUnknown bool
	// AllowTCP accepts, where Allow is set, connections by TCP. Without it, a dial by TCP
	// succeeds, and the connection is reset.
	AllowTCP bool
}

// Listen listens on "host:port" or ":port". The host must be this one. Port 0 picks a free
// port, which Addr returns. Networks are as for Dial. With network "tcp" the listener is a
// *TCPListener.
func Listen(network, address string) (net.Listener, error) {
	return (&ListenConfig{}).Listen(context.Background(), network, address)
}

// Listen listens on "host:port". ctx limits the resolution of the address, not
// the listener.
func (lc *ListenConfig) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	switch network {
	case Network:
		l, err := lc.listenSDP(ctx, address)
		if err != nil {
			return nil, err
		}
		return l, nil
	case "tcp", "tcp4", "tcp6":
		return lc.listenTCP(ctx, network, address)
	}
	return lc.net().Listen(ctx, network, address)
}

// net returns the net.ListenConfig that listens by TCP.
func (lc *ListenConfig) net() *net.ListenConfig {
	var config net.ListenConfig
	if lc.TCP != nil {
		config = *lc.TCP
	}
	return &config
}

func (lc *ListenConfig) listenSDP(ctx context.Context, address string) (*Listener, error) {
	name, port, err := splitAddress(ctx, address)
	if err != nil {
		return nil, opError(opListen, nil, nil, err)
	}
	local := &Addr{name, port}
	f, done, err := lc.Fabric.use(ctx)
	if err != nil {
		return nil, opError(opListen, nil, local, err)
	}
	defer done()
	if host, err := f.stack.fabric.LookupHost(ctx, name); err != nil || host != f.stack.fabric.Host() {
		err := fmt.Errorf("%q is not this host: %w", name, syscall.EADDRNOTAVAIL)
		return nil, opError(opListen, nil, local, err)
	}
	l, err := f.listenPort(port, lc)
	if err != nil {
		return nil, opError(opListen, nil, local, err)
	}
	return l, nil
}

func (f *Fabric) listenPort(port int, lc *ListenConfig) (*Listener, error) {
	port, err := f.stack.fabric.ClaimPort(port)
	if err != nil {
		return nil, err
	}
	at := &listening{fabric: f, addr: &Addr{f.thisHost(), port}}
	at.queue = f.stack.listeners.Listen(port, listen.Config{Backlog: lc.Backlog, Allow: lc.allow(f, at.addr)})
	if err := f.add(at); err != nil {
		at.Close()
		return nil, err
	}
	l := &Listener{at: at}
	if !f.stack.bubble {
		l.dropped = runtime.AddCleanup(l, (*listening).drop, at)
	}
	return l, nil
}

// Listener accepts connections of network "sdp". As with package net, the garbage collector
// closes a Listener that the program has dropped.
type Listener struct {
	at      *listening // immutable
	dropped runtime.Cleanup
}

// listening is the part of a Listener that its Fabric keeps. It does not refer to the
// Listener.
type listening struct {
	fabric *Fabric // immutable
	addr   *Addr   // immutable
	queue  *listen.Listener
	gone   sync.Once // the port is released, or handed over
}

// Close stops listening. Its errors are those of listen.Listener.
func (at *listening) Close() error {
	if err := at.queue.Close(); err != nil {
		return err
	}
	at.gone.Do(func() { at.fabric.stack.fabric.ReleasePort(at.addr.Port) })
	at.fabric.remove(at)
	return nil
}

// drop closes a Listener that is garbage, not on the collector's goroutine.
func (at *listening) drop() { go at.Close() }

func (l *Listener) opError(op string, err error) error { return opError(op, nil, l.at.addr, err) }

// Accept waits for a connection, which is a *Conn. Its errors are net.ErrClosed,
// os.ErrDeadlineExceeded, and, since processes no longer find the listener when the directory of
// their fabric was removed or replaced, syscall.ESTALE.
func (l *Listener) Accept() (net.Conn, error) {
	defer runtime.KeepAlive(l)
	_ = l.at.fabric.stack.fabric.Lost() // which may stop the queue
	a, err := l.at.queue.Accept()
	if err != nil {
		return nil, l.opError(opAccept, err)
	}
	f := l.at.fabric
	c, err := newConn(f, a.Pair, l.at.addr, &Addr{f.hostName(a.Pair.Peer().ID().Host()), a.From}, nil)
	if err != nil {
		return nil, l.opError(opAccept, err)
	}
	raceAcquire(c.pair)
	return c, nil
}

// Close stops listening, wakes Accept, and resets the connections that wait for it.
// Accepted connections stay.
func (l *Listener) Close() error {
	l.dropped.Stop()
	if err := l.at.Close(); err != nil {
		return l.opError(opClose, err)
	}
	return nil
}

// Handover stops listening, for another process of this host that is about to listen on the port, as
// when a server is replaced by a new version. Accept returns the connections that wait, and then
// net.ErrClosed. Close must still be called.
//
// Dials of the port wait for that process, for a second at most, rather than being refused. Where
// several users share a directory, a dial by another user than this process's waits if its process
// has reached this user at the port before, or this user is root or owns the directory.
func (l *Listener) Handover() {
	at := l.at
	at.gone.Do(func() { at.fabric.stack.fabric.Handover(at.addr.Port) }) // first, so that dials which are refused find the mark
	at.queue.Stop()
	runtime.KeepAlive(l)
}

// Addr returns the *Addr on which it listens.
func (l *Listener) Addr() net.Addr { return l.at.addr }

// SetDeadline makes Accept fail at t. The zero time means never.
func (l *Listener) SetDeadline(t time.Time) error {
	l.at.queue.SetDeadline(t)
	runtime.KeepAlive(l)
	return nil
}
