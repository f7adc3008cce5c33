package listen

import (
	"errors"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ring"
)

// DefaultBacklog is how many connections may wait for Accept.
const DefaultBacklog = 4096

// ErrClosed: the listener is closed.
var ErrClosed = errors.New("listen: closed")

// Accepted is a connection and where it comes from.
type Accepted struct {
	Pair *bounce.Pair
	From int // the peer's port
	// Addresses are those of a listener that has TCP's. They are the connection's until
	// it is given to Table.Release.
	Addresses Addresses
}

// Socket names the TCP socket in whose place a listener accepts connections.
type Socket struct{ Cookie, Namespace uint64 }

// Addresses are those of a connection of network "tcp".
type Addresses struct{ Local, Remote netip.AddrPort }

// TCP makes a listener one of network "tcp".
type TCP struct {
	Socket Socket // zero: there is none by which it can be found
	// Addresses are those of the connection that a Hello asks for. It is false if the
	// Hello asks for what cannot be. It must not block.
	Addresses func(*ring.Peer, *hello.Hello) (Addresses, bool)
}

// Table is the listeners of a node, by port.
type Table struct {
	// Elsewhere, if set, finds another process of this host that holds a port, 0 if
	// there is none. It is set before the first Hello, and must not block.
	Elsewhere func(port int) (process int)

	// mu is shared by all peers, and is not held while anything is sent to one.
	mu      lock.Mutex[lock.Listen]
	ports   map[int]*Listener      // open ones; guarded by mu
	sockets map[Socket][]*Listener // open ones; guarded by mu
	used    map[Addresses]struct{} // of connections that are not released; guarded by mu
}

// NewTable is a table without listeners.
func NewTable() *Table {
	return &Table{ports: map[int]*Listener{}, sockets: map[Socket][]*Listener{}, used: map[Addresses]struct{}{}}
}

// Listener is one port's accept queue.
type Listener struct {
	table    *Table
	port     int           // 0: none; immutable
	tcp      *TCP          // nil: network "sdp"; immutable
	queue    chan Accepted // its capacity is the backlog; sent to under table.mu, while open
	stopped  chan struct{} // closed by Stop
	drained  chan struct{} // closed when it is stopped and nothing waits
	closed   chan struct{} // closed by Close
	once     sync.Once
	deadline deadline

	// Guarded by table.mu.
	open      bool
	empty     bool // drained is closed
	answering int  // places in the queue for Hellos that are being answered
}

// Listen opens a port, which the caller has claimed. backlog 0 means
// DefaultBacklog.
func (t *Table) Listen(port, backlog int) *Listener { return t.ListenTCP(port, backlog, nil) }

// ListenTCP is Listen for network "tcp". Port 0 is none: then the listener is found by
// its socket only.
func (t *Table) ListenTCP(port, backlog int, tcp *TCP) *Listener {
	if backlog <= 0 {
		backlog = DefaultBacklog
	}
	l := &Listener{
		table: t, port: port, tcp: tcp, queue: make(chan Accepted, backlog), closed: make(chan struct{}), open: true,
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
	return l
}

func (l *Listener) socket() Socket {
	if l.tcp == nil {
		return Socket{}
	}
	return l.tcp.Socket
}

// Release gives the addresses of a connection back. It does nothing for none.
func (t *Table) Release(a Addresses) {
	if a == (Addresses{}) {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.used, a)
}

// Hello answers a Hello. It waits for nobody but the peer, where stores to it block.
// An error is the peer's violation of the protocol.
func (t *Table) Hello(p *bounce.Pool, h *hello.Hello) error {
	reason, err := t.accept(p, h)
	if err != nil || reason == 0 {
		return err
	}
	r := hello.Refuse{Slot: h.End.Slot, Gen: h.End.Gen, Reason: reason}
	if reason == hello.NotListening && h.TCP.Cookie == 0 && t.Elsewhere != nil {
		if process := t.Elsewhere(int(h.To)); process != 0 {
			r.Reason, r.Process = hello.Elsewhere, uint16(process)
		}
	}
	_ = p.Peer().Send(ring.ServiceSDP, r.Marshal()) // if the link is down, nobody waits
	return nil
}

func (t *Table) accept(p *bounce.Pool, h *hello.Hello) (hello.Reason, error) {
	if h.Version != hello.Version && h.Version != hello.VersionTCP {
		return hello.BadVersion, nil
	}
	l, addresses, reason := t.reserve(p.Peer(), h)
	if reason != 0 {
		return reason, nil
	}
	pair, err := p.NewPair()
	if err != nil {
		l.giveBack(addresses)
		return hello.WindowFull, nil
	}
	if err := pair.Connect(bounce.End(h.End)); err != nil {
		l.giveBack(addresses)
		p.Discard(pair)
		return 0, err
	}
	ack := hello.HelloAck{Slot: h.End.Slot, Gen: h.End.Gen, End: hello.End(pair.End())}
	// If the link has gone down meanwhile, the pair learns of it as all do.
	_ = p.Peer().Send(ring.ServiceSDP, ack.Marshal())
	if !l.deliver(Accepted{Pair: pair, From: int(h.From), Addresses: addresses}) {
		// On a goroutine of its own: this one may be in a Read or Write of another
		// connection.
		go pair.Abort()
	}
	return 0, nil
}

// reserve takes a place in a listener's queue, and the connection's addresses, which
// deliver or giveBack ends, or says why there is none.
func (t *Table) reserve(p *ring.Peer, h *hello.Hello) (*Listener, Addresses, hello.Reason) {
	l := t.find(h)
	if l == nil {
		return nil, Addresses{}, hello.NotListening
	}
	var a Addresses
	if l.tcp != nil {
		var ok bool
		if a, ok = l.tcp.Addresses(p, h); !ok {
			return nil, Addresses{}, hello.NotListening
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if !l.open || isClosed(l.stopped) {
		return nil, Addresses{}, hello.NotListening
	}
	if l.answering+len(l.queue) >= cap(l.queue) {
		return nil, Addresses{}, hello.BacklogFull
	}
	if l.tcp != nil {
		var reason hello.Reason
		if a, reason = t.take(a, h.Version == hello.VersionTCP); reason != 0 {
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

// firstUserPort is the first that needs no privilege.
const firstUserPort = 1024

// take takes a pair of addresses. Where the dialler does not care, its port may become
// another. The caller holds mu.
func (t *Table) take(a Addresses, exact bool) (Addresses, hello.Reason) {
	for range 1 << 16 {
		if _, ok := t.used[a]; !ok {
			t.used[a] = struct{}{}
			return a, 0
		}
		if exact {
			return Addresses{}, hello.AddressTaken
		}
		port := max(a.Remote.Port()+1, firstUserPort) // after 65535 comes 0
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
// if the listener has been closed since; then the connection is still the caller's.
func (l *Listener) deliver(a Accepted) bool {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	l.answering--
	if l.open {
		l.queue <- a // there is room: the place was counted
	} else {
		delete(l.table.used, a.Addresses)
	}
	l.checkDrained()
	return l.open
}

// Accept waits for a connection. Its errors are ErrClosed and
// os.ErrDeadlineExceeded.
func (l *Listener) Accept() (Accepted, error) {
	a, _, err := l.AcceptOr(nil)
	return a, err
}

// AcceptOr is Accept that waits for another channel too. other is true if that came
// first.
func (l *Listener) AcceptOr(c <-chan struct{}) (_ Accepted, other bool, _ error) {
	select {
	case <-l.closed:
		return Accepted{}, false, ErrClosed
	default:
	}
	expired := l.deadline.wait()
	select {
	case <-expired:
		return Accepted{}, false, os.ErrDeadlineExceeded
	default:
	}
	select {
	case a := <-l.queue:
		l.tookOne()
		return a, false, nil
	case <-c:
		return Accepted{}, true, nil
	case <-l.drained:
		return Accepted{}, false, ErrClosed
	case <-l.closed:
		return Accepted{}, false, ErrClosed
	case <-expired:
		return Accepted{}, false, os.ErrDeadlineExceeded
	}
}

// Stop ends what comes new. Accept returns what waits, and then ErrClosed. Close is still
// to be called.
func (l *Listener) Stop() {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	if isClosed(l.stopped) {
		return
	}
	l.forget()
	close(l.stopped)
	l.checkDrained()
}

// tookOne is called when a connection was taken out of the queue.
func (l *Listener) tookOne() {
	if isClosed(l.stopped) {
		l.table.mu.Lock()
		defer l.table.mu.Unlock()
		l.checkDrained()
	}
}

// checkDrained notes that nothing can come any more. The caller holds table.mu.
func (l *Listener) checkDrained() {
	if !l.empty && isClosed(l.stopped) && l.answering == 0 && len(l.queue) == 0 {
		l.empty = true
		close(l.drained)
	}
}

// Closed reports whether Close was called.
func (l *Listener) Closed() bool { return isClosed(l.closed) }

// SetDeadline makes Accept fail at t, or never if t is zero.
func (l *Listener) SetDeadline(t time.Time) { l.deadline.set(t) }

// Close ends Accept and resets the connections that wait for it, and those whose
// Hellos are being answered. It does not wait for the resets: where stores to a peer
// block, that holds up only what that peer is told. Each connection holds its peer, so
// ring.Node.Close waits for them.
func (l *Listener) Close() error {
	err := ErrClosed
	l.once.Do(func() {
		err = nil
		l.table.mu.Lock()
		l.open = false
		l.forget()
		l.table.mu.Unlock()
		close(l.closed)
		l.deadline.set(time.Time{})
		for _, pairs := range l.waiting() {
			go func() {
				for _, p := range pairs {
					p.Abort()
				}
			}()
		}
	})
	return err
}

// forget takes it out of the table. The caller holds table.mu.
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
func (l *Listener) waiting() map[*ring.Peer][]*bounce.Pair {
	pairs := map[*ring.Peer][]*bounce.Pair{}
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
