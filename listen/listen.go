package listen

import (
	"errors"
	"os"
	"sync"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/hello"
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

	mu    sync.Mutex
	ports map[int]*Listener // guarded by mu
}

// NewTable is a table without listeners.
func NewTable() *Table { return &Table{ports: map[int]*Listener{}} }

// Listener is one port's accept queue.
type Listener struct {
	table    *Table
	port     int
	queue    chan Accepted // sent to under table.mu, while the port is in the table
	closed   chan struct{} // closed by Close
	once     sync.Once
	deadline deadline
}

// Listen opens a port, which the caller has claimed. backlog 0 means
// DefaultBacklog.
func (t *Table) Listen(port, backlog int) *Listener {
	if backlog <= 0 {
		backlog = DefaultBacklog
	}
	l := &Listener{table: t, port: port, queue: make(chan Accepted, backlog), closed: make(chan struct{})}
	l.deadline.init()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ports[port] = l
	return l
}

// Hello answers a Hello. It does not block. An error is the peer's violation of
// the protocol.
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
	t.mu.Lock()
	defer t.mu.Unlock()
	l := t.ports[int(h.To)]
	if l == nil {
		return hello.NotListening, nil
	}
	if len(l.queue) == cap(l.queue) {
		return hello.BacklogFull, nil
	}
	pair, err := p.NewPair()
	if err != nil {
		return hello.WindowFull, nil
	}
	if err := pair.Connect(bounce.End(h.End)); err != nil {
		p.Discard(pair)
		return 0, err
	}
	ack := hello.HelloAck{Slot: h.End.Slot, Gen: h.End.Gen, End: hello.End(pair.End())}
	// If the link has gone down meanwhile, the pair learns of it as all do.
	_ = p.Peer().Send(ring.ServiceSDP, ack.Marshal())
	l.queue <- Accepted{Pair: pair, From: int(h.From)}
	return 0, nil
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

// Close ends Accept and resets the connections that wait for it.
func (l *Listener) Close() error {
	err := ErrClosed
	l.once.Do(func() {
		err = nil
		l.table.mu.Lock()
		delete(l.table.ports, l.port)
		l.table.mu.Unlock()
		close(l.closed)
		l.deadline.set(time.Time{})
		for {
			select {
			case a := <-l.queue:
				a.Pair.Abort()
				continue
			default:
			}
			break
		}
	})
	return err
}
