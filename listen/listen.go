package listen

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/internal/wait"
)

// DefaultBacklog is the default limit of connections that wait for Accept.
const DefaultBacklog = 4096

// ErrClosed reports that the listener is closed.
var ErrClosed = errors.New("listen: closed")

// Accepted is a connection and where it comes from.
type Accepted struct {
	Pair *bounce.Pair
	From int // the peer's port
	// Addresses are those of the connection if the listener is of network "tcp". They
	// are reserved until they are passed to Table.Release.
	Addresses Addresses
}

// Socket identifies the TCP socket in place of which a listener accepts
// connections.
type Socket struct{ Cookie, Namespace uint64 }

// Addresses are those of a connection of network "tcp".
type Addresses struct{ Local, Remote netip.AddrPort }

// TCP configures a listener of network "tcp".
type TCP struct {
	Socket Socket // zero if no socket identifies the listener
	// Addresses returns the addresses of the connection that a Hello asks for, or the
	// reason why there cannot be one. It must not block.
	Addresses func(*link.Peer, *hello.Hello) (Addresses, hello.Reason)
}

// Config is what a listener may have besides a port. The zero Config is usable.
type Config struct {
	Backlog int  // 0 means DefaultBacklog
	TCP     *TCP // nil for network "sdp"
	// Allow, if not nil, returns an error for a peer whose connections are refused. It is
	// called for each Hello, on a goroutine of its own, while a place in the backlog is
	// taken.
	Allow func(*link.Peer) error
}

// Host knows where else on this host a peer may find what it dials, and hears of those that are
// refused. Its methods must not block.
type Host interface {
	// OtherHolder returns another process of this host that holds a port, or 0.
	OtherHolder(port int) (process int)
	// HandedOver reports whether a process of this host has just handed a port over to one
	// that will listen.
	HandedOver(port int) bool
	// Refuse is called for each Hello of another version, with an error that wraps a
	// *hello.VersionError.
	Refuse(error)
	// TooMany is called for each Hello that is refused because the peer's user has too many
	// connections.
	TooMany(*link.Peer)
}

// Table has the listeners of a node, by port.
type Table struct {
	// Host, if not nil, knows of other processes. It is set before the first Hello.
	Host Host

	// mu is shared by all peers. It is not held while anything is sent to one.
	mu      lock.Mutex[lock.Listen]
	ports   map[int]*Listener      // open listeners; guarded by mu
	sockets map[Socket][]*Listener // open listeners; guarded by mu
	used    map[Addresses]struct{} // addresses that are not released; guarded by mu
	failed  error                  // of Fail; guarded by mu
}

// NewTable returns a table without listeners.
func NewTable() *Table {
	return &Table{ports: map[int]*Listener{}, sockets: map[Socket][]*Listener{}, used: map[Addresses]struct{}{}}
}

// Listener is one port's accept queue.
type Listener struct {
	table    *Table
	port     int                    // 0 if it has none; immutable
	tcp      *TCP                   // nil for network "sdp"; immutable
	allow    func(*link.Peer) error // nil for all; immutable
	queue    chan Accepted          // its capacity is the backlog; sent to under table.mu, until it is closed
	deadline deadline

	// How far the listener has come. Each is closed with table.mu held.
	stopped chan struct{} // by Stop
	drained chan struct{} // when it is stopped and no connection waits
	closed  chan struct{} // by Close

	latest   atomic.Pointer[bounce.Pool] // of the peer that has connected last, or nil
	spinning atomic.Bool                 // an Accept is in spin
	spinner  *wait.Spinner               // of the Accept that has set spinning; nil until the first spin

	// Guarded by table.mu.
	failed    error // why Fail stopped it; constant once stopped is closed
	answering int   // places in the queue for Hellos that are being answered
}

// Listen opens a port. The caller has claimed it. A listener of network "tcp" is found by its
// socket only if the port is 0.
func (t *Table) Listen(port int, c Config) *Listener {
	backlog := c.Backlog
	if backlog <= 0 {
		backlog = DefaultBacklog
	}
	l := &Listener{
		table: t, port: port, tcp: c.TCP, allow: c.Allow, queue: make(chan Accepted, backlog), closed: make(chan struct{}),
		stopped: make(chan struct{}), drained: make(chan struct{}),
	}
	l.deadline.init()
	t.mu.Lock()
	defer t.mu.Unlock()
	if port != 0 {
		t.ports[port] = l
	}
	if s := l.socket(); s != (Socket{}) {
		t.sockets[s] = append(t.sockets[s], l)
	}
	if t.failed != nil {
		l.stop(t.failed)
	}
	return l
}

func (l *Listener) socket() Socket {
	if l.tcp == nil {
		return Socket{}
	}
	return l.tcp.Socket
}

// Release releases the addresses of a connection. It does nothing for the zero
// Addresses.
func (t *Table) Release(a Addresses) {
	if a == (Addresses{}) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.used, a)
}

// Hello answers a Hello. It may wait where stores to the peer block, and makes short system
// calls. It waits for nothing else. It returns an error if the peer violates the protocol.
func (t *Table) Hello(p *bounce.Pool, h *hello.Hello) error {
	reason, err := t.accept(p, h)
	if err == nil && reason != 0 {
		t.refuse(p, h, reason)
	}
	return err
}

// refuse answers a Hello with the reason why there is no connection.
func (t *Table) refuse(p *bounce.Pool, h *hello.Hello, reason hello.Reason) {
	process := 0
	if reason == hello.NotListening && h.TCP.Cookie == 0 && t.Host != nil {
		if process = t.Host.OtherHolder(int(h.To)); process != 0 {
			reason = hello.OtherProcess
		} else if t.Host.HandedOver(int(h.To)) {
			reason = hello.BacklogFull // so that the peer tries again
		}
	}
	t.Refuse(p, h, reason, process)
}

// Refuse answers a Hello with a reason, which for hello.OtherProcess names a process. For others that is 0.
func (*Table) Refuse(p *bounce.Pool, h *hello.Hello, reason hello.Reason, process int) {
	r := hello.Refuse{Version: hello.Version, Slot: h.Endpoint.Slot, Gen: h.Endpoint.Gen, Reason: reason, Process: uint16(process)}
	_ = p.Peer().Send(link.ServiceSDP, r.Marshal()) // if the link is down, the peer waits for no answer
}

func (t *Table) accept(p *bounce.Pool, h *hello.Hello) (hello.Reason, error) {
	if h.Version != hello.Version {
		if t.Host != nil {
			t.Host.Refuse(fmt.Errorf("%v dials: %w", p.Peer().ID(), &hello.VersionError{Peer: h.Version}))
		}
		return hello.BadVersion, nil
	}
	l, addresses, reason := t.reserve(p.Peer(), h)
	if reason != 0 {
		return reason, nil
	}
	if l.allow != nil {
		go t.ask(p, l, h, addresses) // which may take long, and other connections of the link do not wait
		return 0, nil
	}
	return t.open(p, l, h, addresses)
}

// ask answers a Hello to a listener that does not admit all.
func (t *Table) ask(p *bounce.Pool, l *Listener, h *hello.Hello, addresses Addresses) {
	refused := l.allow(p.Peer()) != nil
	if !p.Hold() {
		l.giveBack(addresses)
		return // the link is down, and nobody waits for an answer
	}
	defer p.Peer().Release()
	reason, err := hello.Forbidden, error(nil)
	if refused {
		l.giveBack(addresses)
	} else {
		reason, err = t.open(p, l, h, addresses)
	}
	switch {
	case err != nil:
		p.Peer().Fail(fmt.Errorf("%w: from %v: %w", link.ErrProtocol, p.Peer().ID(), err))
	case reason != 0:
		t.refuse(p, h, reason)
	}
}

// open opens a connection for which there is a place in the listener's queue.
func (t *Table) open(p *bounce.Pool, l *Listener, h *hello.Hello, addresses Addresses) (hello.Reason, error) {
	pair, err := p.Accept()
	if err != nil {
		l.giveBack(addresses)
		if !errors.Is(err, bounce.ErrQuota) {
			return hello.WindowFull, nil
		}
		if t.Host != nil {
			t.Host.TooMany(p.Peer())
		}
		return hello.TooMany, nil
	}
	if err := pair.Connect(bounce.Endpoint(h.Endpoint)); err != nil {
		l.giveBack(addresses)
		p.Discard(pair)
		return 0, err
	}
	ack := hello.HelloAck{Slot: h.Endpoint.Slot, Gen: h.Endpoint.Gen, Endpoint: hello.Endpoint(pair.Endpoint())}
	// If the link has gone down meanwhile, the pair learns of it as all others do.
	_ = p.Peer().Send(link.ServiceSDP, ack.Marshal())
	if !l.deliver(p, Accepted{Pair: pair, From: int(h.From), Addresses: addresses}) {
		// Abort runs on a goroutine of its own, since this one may be in a Read or
		// Write of another connection.
		go pair.Abort()
	}
	return 0, nil
}

// reserve reserves a place in a listener's queue, and the addresses of the
// connection. deliver or giveBack ends the reservation. If there is no place, it
// returns the reason.
func (t *Table) reserve(p *link.Peer, h *hello.Hello) (*Listener, Addresses, hello.Reason) {
	l := t.find(h)
	if l == nil {
		return nil, Addresses{}, hello.NotListening
	}
	var a Addresses
	if l.tcp != nil {
		var reason hello.Reason
		if a, reason = l.tcp.Addresses(p, h); reason != 0 {
			return nil, Addresses{}, reason
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if isClosed(l.closed) || isClosed(l.stopped) {
		return nil, Addresses{}, hello.NotListening
	}
	if l.answering+len(l.queue) >= cap(l.queue) {
		return nil, Addresses{}, hello.BacklogFull
	}
	if l.tcp != nil {
		var reason hello.Reason
		if a, reason = t.take(a, h.Network == hello.OverTCP); reason != 0 {
			return nil, Addresses{}, reason
		}
	}
	l.answering++
	return l, a, 0
}

func (t *Table) find(h *hello.Hello) *Listener {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := (Socket{h.TCP.Cookie, h.TCP.Namespace}); s != (Socket{}) {
		if all := t.sockets[s]; len(all) > 0 {
			return all[0]
		}
		return nil
	}
	return t.ports[int(h.To)]
}

// firstUserPort is the first port that needs no privilege.
const firstUserPort = 1024

// take reserves a pair of addresses. Unless exact is true, it may choose another port
// for the remote endpoint. The caller holds mu.
func (t *Table) take(a Addresses, exact bool) (Addresses, hello.Reason) {
	for range 1 << 16 {
		if _, ok := t.used[a]; !ok {
			t.used[a] = struct{}{}
			return a, 0
		}
		if exact {
			return Addresses{}, hello.AddressTaken
		}
		port := max(a.Remote.Port()+1, firstUserPort) // 65535 is followed by 0
		a.Remote = netip.AddrPortFrom(a.Remote.Addr(), port)
	}
	return Addresses{}, hello.BacklogFull
}

func (l *Listener) giveBack(a Addresses) {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	l.answering--
	l.checkDrained()
	delete(l.table.used, a)
}

// deliver puts a connection into the place that was reserved for it. It returns false
// if the listener has been closed since. Then the caller still owns the connection.
func (l *Listener) deliver(p *bounce.Pool, a Accepted) bool {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	l.answering--
	open := !isClosed(l.closed)
	if open {
		l.latest.Store(p)
		l.queue <- a // there is room: the place was counted
	} else {
		delete(l.table.used, a.Addresses)
	}
	l.checkDrained()
	return open
}

// Accept waits for a connection and returns it. Its errors are ErrClosed and
// os.ErrDeadlineExceeded, and that of Table.Fail.
func (l *Listener) Accept() (Accepted, error) {
	a, _, err := l.AcceptOr(nil)
	return a, err
}

// AcceptOr is Accept, but also returns, with other set, when c is ready to receive
// from.
func (l *Listener) AcceptOr(c <-chan struct{}) (_ Accepted, other bool, _ error) {
	if isClosed(l.closed) {
		return Accepted{}, false, ErrClosed
	}
	expired := l.deadline.wait()
	if isClosed(expired) {
		return Accepted{}, false, os.ErrDeadlineExceeded
	}
	if isClosed(l.drained) { // c may be ready again and again
		return Accepted{}, false, l.end()
	}
	if len(l.queue) == 0 {
		l.spin()
	}
	select {
	case a := <-l.queue:
		l.tookOne()
		return a, false, nil
	case <-c:
		return Accepted{}, true, nil
	case <-l.drained:
		return Accepted{}, false, l.end()
	case <-l.closed:
		return Accepted{}, false, ErrClosed
	case <-expired:
		return Accepted{}, false, os.ErrDeadlineExceeded
	}
}

// spin polls what the peer that has connected last announces, for as long as a wait may
// spin. So a peer that connects again and again is answered without a wake-up. Another
// Accept that comes meanwhile sleeps at once.
func (l *Listener) spin() {
	p := l.latest.Load()
	if p == nil || !l.spinning.CompareAndSwap(false, true) {
		return
	}
	defer l.spinning.Store(false)
	if !p.Hold() {
		l.latest.CompareAndSwap(p, nil)
		return
	}
	defer p.Peer().Release()
	if l.spinner == nil {
		s := p.Spinner()
		l.spinner = &s
	}
	p.Spin(l.spinner, func() bool { return len(l.queue) > 0 || isClosed(l.closed) })
}

// Closed reports whether Close was called.
func (l *Listener) Closed() bool { return isClosed(l.closed) }

// SetDeadline makes Accept fail at t, or never if t is zero.
func (l *Listener) SetDeadline(t time.Time) { l.deadline.set(t) }

// Close ends Accept. It resets the connections that wait for it, and those whose
// Hellos are being answered. It does not wait for the resets. Each connection holds its
// peer, so link.Node.Close waits for them. Where stores to a peer block, the resets delay
// only what is sent to that peer.
func (l *Listener) Close() error {
	if !l.shut() {
		return ErrClosed
	}
	l.deadline.set(time.Time{})
	for _, pairs := range l.waiting() {
		go func() {
			for _, p := range pairs {
				p.Abort()
			}
		}()
	}
	return nil
}

// shut ends Accept. It reports whether it is the first call.
func (l *Listener) shut() bool {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	if isClosed(l.closed) {
		return false
	}
	l.forget()
	close(l.closed)
	return true
}

// forget removes the listener from the table. The caller holds table.mu.
func (l *Listener) forget() {
	t, s := l.table, l.socket()
	if t.ports[l.port] == l {
		delete(t.ports, l.port)
	}
	t.sockets[s] = slices.DeleteFunc(t.sockets[s], func(o *Listener) bool { return o == l })
	if len(t.sockets[s]) == 0 {
		delete(t.sockets, s)
	}
}

// waiting empties the queue of a listener that is closed.
func (l *Listener) waiting() map[*link.Peer][]*bounce.Pair {
	pairs := map[*link.Peer][]*bounce.Pair{}
	for {
		select {
		case a := <-l.queue:
			l.table.Release(a.Addresses)
			peer := a.Pair.Peer()
			pairs[peer] = append(pairs[peer], a.Pair)
		default:
			return pairs
		}
	}
}
