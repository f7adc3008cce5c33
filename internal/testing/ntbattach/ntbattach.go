package ntbattach

import (
	"context"
	"fmt"
	"sync"

	"github.com/ntbnet/ntbnet/internal/lock"
	"github.com/ntbnet/ntbnet/ntb"
)

// Ends returns the two ends of a bridge within a process. Each session is a bridge of its
// own that pair makes, such as ntbmem.Pair, with devices around both ends or without. So its
// memory is fresh.
func Ends(pair func() (a, b ntb.Device)) (a, b ntb.Attachment) {
	m := &meeting{pair: pair}
	x, y := newAttachment(m, 0), newAttachment(m, 1)
	return x, y
}

// meeting is where two sides that open a session find each other.
type meeting struct {
	pair func() (a, b ntb.Device) // immutable

	mu    lock.Mutex[lock.Attach]
	waits [2]chan ntb.Device // of the side that came first, else nil; capacity 1; guarded by mu
}

// attachment is one end of a meeting.
type attachment struct {
	meeting *meeting
	side    int           // 0 or 1
	opening chan struct{} // capacity 1: Open is under way
	closed  chan struct{} // closed by Close
	once    sync.Once     // for Close
	current ntb.Device    // of the session; guarded by opening
}

func newAttachment(m *meeting, side int) *attachment {
	return &attachment{meeting: m, side: side, opening: make(chan struct{}, 1), closed: make(chan struct{})}
}

// Open implements ntb.Attachment.
func (p *attachment) Open(ctx context.Context) (ntb.Device, error) {
	select {
	case p.opening <- struct{}{}:
		defer func() { <-p.opening }()
	case <-p.closed:
		return nil, ntb.ErrClosed
	case <-ctx.Done():
		return nil, fmt.Errorf("ntbattach: another call opens a session: %w", ctx.Err())
	}
	p.end()
	select {
	case <-p.closed:
		return nil, ntb.ErrClosed
	default:
	}
	dev, met := p.meet()
	if dev == nil {
		select {
		case dev = <-met:
		case <-p.closed:
			p.leave(met)
			return nil, ntb.ErrClosed
		case <-ctx.Done():
			p.leave(met)
			return nil, fmt.Errorf("ntbattach: the other side opens no session: %w", ctx.Err())
		}
	}
	p.current = dev
	return dev, nil
}

// meet makes a session with the other side if that waits, or begins to wait.
func (p *attachment) meet() (ntb.Device, chan ntb.Device) {
	m := p.meeting
	m.mu.Lock()
	defer m.mu.Unlock()
	if other := m.waits[1-p.side]; other != nil {
		m.waits[1-p.side] = nil
		a, b := m.pair()
		ends := [2]ntb.Device{a, b}
		other <- ends[1-p.side]
		return ends[p.side], nil
	}
	m.waits[p.side] = make(chan ntb.Device, 1)
	return nil, m.waits[p.side]
}

// leave ends a wait. If the other side has come meanwhile, the session ends at once.
func (p *attachment) leave(met chan ntb.Device) {
	m := p.meeting
	m.mu.Lock()
	if m.waits[p.side] == met {
		m.waits[p.side] = nil
	}
	m.mu.Unlock()
	select {
	case dev := <-met:
		dev.Close()
	default:
	}
}

// end ends the session. The caller holds opening.
func (p *attachment) end() {
	if p.current != nil {
		p.current.Disable()
		p.current = nil
	}
}

// Close implements ntb.Attachment.
func (p *attachment) Close() error {
	p.once.Do(func() {
		close(p.closed)
		p.opening <- struct{}{}
		p.end()
		<-p.opening
	})
	return nil
}
