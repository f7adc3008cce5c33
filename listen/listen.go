package listen

import (
	"errors"
	"os"
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
}

// Table is the listeners of a node, by port.
type Table struct {
	// Elsewhere, if set, finds another process of this host that holds a port, 0 if
	// there is none. It is set before the first Hello, and must not block.
	Elsewhere func(port int) (process int)

	// mu is shared by all peers, and is not held while anything is sent to one.
	mu    lock.Mutex[lock.Listen]
	ports map[int]*Listener // open ones; guarded by mu
}

// NewTable is a table without listeners.
func NewTable() *Table { return &Table{ports: map[int]*Listener{}} }

// Listener is one port's accept queue.
type Listener struct {
	table    *Table
	port     int
	queue    chan Accepted // its capacity is the backlog; sent to under table.mu, while open
	closed   chan struct{} // closed by Close
	once     sync.Once
	deadline deadline

	// Guarded by table.mu.
	open      bool
	answering int // places in the queue for Hellos that are being answered
}

// Listen opens a port, which the caller has claimed. backlog 0 means
// DefaultBacklog.
func (t *Table) Listen(port, backlog int) *Listener {
	if backlog <= 0 {
		backlog = DefaultBacklog
	}
	l := &Listener{table: t, port: port, queue: make(chan Accepted, backlog), closed: make(chan struct{}), open: true}
	l.deadline.init()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ports[port] = l
	return l
}

// Hello answers a Hello. It waits for nobody but the peer, where stores to it block.
// An error is the peer's violation of the protocol.
func (t *Table) Hello(p *bounce.Pool, h *hello.Hello) error {
	reason, err := t.accept(p, h)
	if err != nil || reason == 0 {
		return err
	}
	r := hello.Refuse{Slot: h.End.Slot, Gen: h.End.Gen, Reason: reason}
	if reason == hello.NotListening && t.Elsewhere != nil {
		if process := t.Elsewhere(int(h.To)); process != 0 {
			r.Reason, r.Process = hello.Elsewhere, uint16(process)
		}
	}
	_ = p.Peer().Send(ring.ServiceSDP, r.Marshal()) // if the link is down, nobody waits
	return nil
}

func (t *Table) accept(p *bounce.Pool, h *hello.Hello) (hello.Reason, error) {
	if h.Version != hello.Version {
		return hello.BadVersion, nil
	}
	l, reason := t.reserve(int(h.To))
	if reason != 0 {
		return reason, nil
	}
	pair, err := p.NewPair()
	if err != nil {
		l.giveBack()
		return hello.WindowFull, nil
	}
	if err := pair.Connect(bounce.End(h.End)); err != nil {
		l.giveBack()
		p.Discard(pair)
		return 0, err
	}
	ack := hello.HelloAck{Slot: h.End.Slot, Gen: h.End.Gen, End: hello.End(pair.End())}
	// If the link has gone down meanwhile, the pair learns of it as all do.
	_ = p.Peer().Send(ring.ServiceSDP, ack.Marshal())
	if !l.deliver(Accepted{Pair: pair, From: int(h.From)}) {
		// On a goroutine of its own: this one may be in a Read or Write of another
		// connection.
		go pair.Abort()
	}
	return 0, nil
}

// reserve takes a place in a port's queue, which deliver or giveBack ends, or says why
// there is none.
func (t *Table) reserve(port int) (*Listener, hello.Reason) {
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.ports[port]
	if l == nil {
		return nil, hello.NotListening
	}
	if l.answering+len(l.queue) >= cap(l.queue) {
		return nil, hello.BacklogFull
	}
	l.answering++
	return l, 0
}

func (l *Listener) giveBack() {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	l.answering--
}

// deliver puts a connection into the place that was reserved for it. It returns false
// if the listener has been closed since; then the connection is still the caller's.
func (l *Listener) deliver(a Accepted) bool {
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	l.answering--
	if l.open {
		l.queue <- a // there is room: the place was counted
	}
	return l.open
}

// Accept waits for a connection. Its errors are ErrClosed and
// os.ErrDeadlineExceeded.
func (l *Listener) Accept() (Accepted, error) {
	select {
	case <-l.closed:
		return Accepted{}, ErrClosed
	default:
	}
	expired := l.deadline.wait()
	select {
	case <-expired:
		return Accepted{}, os.ErrDeadlineExceeded
	default:
	}
	select {
	case a := <-l.queue:
		return a, nil
	case <-l.closed:
		return Accepted{}, ErrClosed
	case <-expired:
		return Accepted{}, os.ErrDeadlineExceeded
	}
}

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
		delete(l.table.ports, l.port)
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

// waiting empties the queue of a listener that is closed.
func (l *Listener) waiting() map[*ring.Peer][]*bounce.Pair {
	pairs := map[*ring.Peer][]*bounce.Pair{}
	for {
		select {
		case a := <-l.queue:
			peer := a.Pair.Peer()
			pairs[peer] = append(pairs[peer], a.Pair)
		default:
			return pairs
		}
	}
}
