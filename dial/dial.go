package dial

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/bounce"
	"github.com/ntbnet/ntbnet/internal/hello"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/lock"
)

// ErrLinkDown reports that the link went down before the peer answered. The caller
// may try another link.
var ErrLinkDown = errors.New("link went down before the answer")

// ErrAddressTaken reports that the peer has a connection with the same addresses and
// ports. The caller may try another port.
var ErrAddressTaken = errors.New(hello.AddressTaken.String())

// ErrForbidden reports that the listener does not admit the user of this process.
var ErrForbidden = fmt.Errorf("%v: %w", hello.Forbidden, syscall.EACCES)

// ErrUnknownSource reports that the listener's host does not know the address of this one.
var ErrUnknownSource = errors.New(hello.UnknownSource.String())

// ErrTooMany reports that the listener's process has as many connections of the user of this
// process as it takes of another user.
var ErrTooMany = fmt.Errorf("%v: %w", hello.TooMany, syscall.EAGAIN)

// RedirectError reports that another process of the peer's host holds the port.
type RedirectError struct {
	Process int // number of that process, 1 to 65535
}

func (e *RedirectError) Error() string {
	return fmt.Sprintf("process %d of the host holds the port", e.Process)
}

// Table has the dials that are under way with one peer.
type Table struct {
	pool *bounce.Pool // immutable

	mu    lock.Mutex[lock.Dial]
	calls map[key]*call // guarded by mu
	down  bool          // guarded by mu
}

// key identifies a Hello by the pair's slot and its generation.
type key struct{ slot, gen uint32 }

// call is one Hello that is not answered yet.
type call struct {
	pair *bounce.Pair
	// answer has capacity 1. It is sent to once, unless the call is abandoned.
	answer    chan error
	abandoned bool // guarded by Table.mu
}

// NewTable returns the table of the peer of a pool.
func NewTable(p *bounce.Pool) *Table { return &Table{pool: p, calls: map[key]*call{}} }

// Dial opens the connection that a Hello asks for, and sets the Hello's Endpoint. It sends one
// Hello, and waits for the answer until ctx ends, or that time. [Retry] decides what follows a failure. The errors are those of ctx, ECONNREFUSED,
// ENOBUFS if a window is full, a *RedirectError, a *hello.VersionError, ErrAddressTaken, ErrForbidden,
// ErrTooMany, ErrUnknownSource, ErrLinkDown, and errBacklog if the listener's backlog is full.
func (t *Table) Dial(ctx context.Context, until time.Time, h hello.Hello) (*bounce.Pair, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if !t.pool.Hold() { // Down may discard the pair while we are here
		return nil, ErrLinkDown
	}
	defer t.pool.Peer().Release()
	pair, err := t.pool.NewPair()
	if errors.Is(err, syscall.ECONNRESET) {
		return nil, ErrLinkDown
	}
	if err != nil {
		return nil, err
	}
	c := &call{pair: pair, answer: make(chan error, 1)}
	ours := pair.Endpoint()
	k := key{ours.Slot, ours.Gen}
	if !t.add(k, c) {
		t.pool.Discard(pair)
		return nil, ErrLinkDown
	}
	h.Endpoint = hello.Endpoint(ours)
	if t.pool.Peer().Send(link.ServiceSDP, h.Marshal()) != nil {
		t.remove(k)
		t.pool.Discard(pair)
		return nil, ErrLinkDown
	}
	t.pool.SpinUntil(func() bool { return len(c.answer) > 0 })
	select {
	case err = <-c.answer:
	default:
		err = t.wait(ctx, until, c)
	}
	if err != nil {
		return nil, err
	}
	return pair, nil
}

// wait waits for the answer of a call. Only here does the dial have a timer: one that is answered
// while it spins wakes no thread to wait for that.
func (t *Table) wait(ctx context.Context, until time.Time, c *call) error {
	ctx, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	select {
	case err := <-c.answer:
		return err
	case <-ctx.Done():
		if t.abandon(c) {
			return ctx.Err()
		}
		return <-c.answer // the answer came at the same moment
	}
}

func (t *Table) add(k key, c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.down {
		return false
	}
	t.calls[k] = c
	return true
}

func (t *Table) remove(k key) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.calls[k]
	delete(t.calls, k)
	return c
}

// abandon leaves the answer to Ack, Refuse or Down. It returns false, and does nothing, if
// the answer is there already. The pair's memory is kept until
// the answer comes, since the peer may have been granted it.
func (t *Table) abandon(c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(c.answer) > 0 {
		return false
	}
	c.abandoned = true
	return true
}

// finish ends a call. It delivers err as the answer, and reports whether the dial waits for that.
func (t *Table) finish(c *call, err error) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if !c.abandoned {
		c.answer <- err
	}
	return !c.abandoned
}

// Ack handles a HelloAck. It returns an error if the peer violates the protocol.
func (t *Table) Ack(a *hello.HelloAck) error {
	c := t.remove(key{a.Slot, a.Gen})
	if c == nil {
		return fmt.Errorf("%w: HelloAck for slot %d, which did not dial", hello.ErrMalformed, a.Slot)
	}
	if err := c.pair.Connect(bounce.Endpoint(a.Endpoint)); err != nil {
		t.pool.Discard(c.pair) // the error takes the link down
		t.finish(c, err)
		return err
	}
	if !t.finish(c, nil) {
		// Abort runs on a goroutine of its own, since this one may be in a Read or Write of
		// another connection.
		go c.pair.Abort()
	}
	return nil
}

// Refuse handles a Refuse. It returns an error if the peer violates the protocol.
func (t *Table) Refuse(r *hello.Refuse) error {
	c := t.remove(key{r.Slot, r.Gen})
	if c == nil {
		return fmt.Errorf("%w: Refuse for slot %d, which did not dial", hello.ErrMalformed, r.Slot)
	}
	t.pool.Discard(c.pair) // the peer was granted it, and promises that it never stores there
	var err error
	switch r.Reason {
	case hello.BacklogFull:
		err = errBacklog
	case hello.WindowFull:
		err = fmt.Errorf("%v: %w", r.Reason, syscall.ENOBUFS)
	case hello.BadVersion:
		err = &hello.VersionError{Peer: r.Version}
	case hello.AddressTaken:
		err = ErrAddressTaken
	case hello.Forbidden:
		err = ErrForbidden
	case hello.TooMany:
		err = ErrTooMany
	case hello.UnknownSource:
		err = ErrUnknownSource
	case hello.OtherProcess:
		err = &RedirectError{int(r.Process)}
	default:
		err = syscall.ECONNREFUSED
	}
	t.finish(c, err)
	return nil
}

// Down ends all dials, since the link is down.
func (t *Table) Down() {
	t.mu.Lock()
	t.down = true
	calls := t.calls
	t.calls = nil
	t.mu.Unlock()
	for _, c := range calls {
		t.pool.Discard(c.pair)
		t.finish(c, ErrLinkDown)
	}
}
