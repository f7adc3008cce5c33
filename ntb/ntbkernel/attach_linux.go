//go:build linux && (amd64 || arm64)

package ntbkernel

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbfixed"
)

// maxDoorbells is how many doorbells of the hardware are used, at most.
const maxDoorbells = ntbfixed.Doorbells

// port is what this package needs of a device node. Its methods may be called from any goroutine.
type port interface {
	// state returns the state of the bridge, after a look at what the other side says.
	state() (State, error)
	// setEvents has the kernel signal eventfds: for the state of the link, and for the doorbells.
	setEvents(files []int32) error
	// ring rings a doorbell of the peer.
	ring(bell int) error
	// descriptor returns what is mapped.
	descriptor() int
	close() error
}

// Attachment is this side's end of a bridge. It implements ntb.Attachment.
type Attachment struct {
	ntb.Attachment         // of ntbfixed.Reattach; it calls attach
	bridge         *bridge // immutable
}

// bridge is what an attachment attaches to, again and again.
type bridge struct {
	address string               // immutable
	window  int                  // immutable
	silence time.Duration        // immutable
	open    func() (port, error) // opens the node; immutable

	why atomic.Pointer[error] // why the link is not ready

	mu     sync.Mutex
	line   *line // the open node; nil while it is not open; guarded by mu
	closed bool  // guarded by mu
}

// Attach opens the node of a bridge, which is this process' until Close. The error wraps ENODEV if there is no such bridge, or its
// module is not loaded, EACCES if this user may not use it, and [ntb.ErrInUse] if another process does.
func Attach(address string, o Options) (*Attachment, error) {
	return attachTo(address, o, func() (port, error) { return openNode(thisSystem, address) })
}

func attachTo(address string, o Options, open func() (port, error)) (*Attachment, error) {
	window, err := o.window()
	if err != nil {
		return nil, err
	}
	b := &bridge{address: address, window: window, silence: o.Silence, open: open}
	if _, err := b.opened(); err != nil {
		return nil, err
	}
	return &Attachment{ntbfixed.Reattach(b.attach), b}, nil
}

// Close implements ntb.Attachment.
func (a *Attachment) Close() error {
	err := a.Attachment.Close()
	a.bridge.mu.Lock()
	a.bridge.closed = true
	a.bridge.mu.Unlock()
	return errors.Join(err, a.bridge.shut())
}

// Why returns why Open waits for the link, or nil if the link is ready. It wraps ENOTCONN.
func (a *Attachment) Why() error {
	if why := a.bridge.why.Load(); why != nil {
		return *why
	}
	return nil
}

// Node returns which node this side is: 1 or 2, the other side being the other. It waits until that is settled.
func (a *Attachment) Node(ctx context.Context) (int, error) {
	s, _, err := a.bridge.await(ctx, func(s *State) bool { return s.Node != 0 })
	return s.Node, err
}

// Check returns how large the windows of a session at a bridge would be as it is now, or why there would be none. It opens
// the node for a moment.
func Check(address string, o Options) (window int, err error) {
	if window, err = o.window(); err != nil {
		return 0, err
	}
	n, err := openNode(thisSystem, address)
	if err != nil {
		return 0, err
	}
	defer n.close()
	s, err := n.state()
	if err != nil {
		return 0, fmt.Errorf("ntbkernel: %w", err)
	}
	return s.window(window), s.missing(address)
}

// line is an open node, with its events.
type line struct {
	port    port
	events  *events
	changed chan struct{}              // capacity 1: the state may have changed
	now     atomic.Pointer[generation] // the latest; nil before the first
	heard   sync.WaitGroup             // listen
}

// opened returns the open node. It opens it if it is not open.
func (b *bridge) opened() (*line, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.closed:
		return nil, ntb.ErrClosed
	case b.line != nil:
		return b.line, nil
	}
	p, err := b.open()
	if err != nil {
		return nil, err
	}
	l := &line{port: p, changed: make(chan struct{}, 1)}
	s, err := p.state()
	if err == nil {
		l.events, err = newEvents(1 + min(s.doorbells, maxDoorbells))
	}
	if err == nil {
		if err = p.setEvents(l.events.fds); err != nil {
			err = errors.Join(err, l.events.close())
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ntbkernel: bridge %s: %w", b.address, err), p.close())
	}
	l.heard.Go(l.listen)
	b.line = l
	return l, nil
}

// shut closes the node, if it is open. No generation is attached.
func (b *bridge) shut() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.line
	if l == nil {
		return nil
	}
	b.line = nil
	err := l.events.close()
	l.heard.Wait()
	return errors.Join(err, l.port.close())
}

// listen waits for changes of the link's state.
func (l *line) listen() {
	for l.events.wait(0) == nil {
		_, _ = l.look() // an error has ended the generation
		select {
		case l.changed <- struct{}{}:
		default:
		}
	}
}

// look returns the state, and ends a generation that is over.
func (l *line) look() (State, error) {
	g := l.now.Load() // before the state, which says nothing of one that begins meanwhile
	s, err := l.port.state()
	if g != nil && (err != nil || !g.lasts(&s)) {
		g.end()
	}
	return s, err
}

// lookEvery is how often Open looks while it waits for the link, since a machine that begins anew may
// cause no event.
const lookEvery = time.Second

// await waits for a state. If the bridge was removed, it closes the node, and the error wraps ENODEV.
func (b *bridge) await(ctx context.Context, good func(*State) bool) (State, *line, error) {
	l, err := b.opened()
	if err != nil {
		return State{}, nil, err
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		s, err := l.look()
		why := s.missing(b.address)
		switch {
		case err != nil:
			return s, nil, fmt.Errorf("ntbkernel: bridge %s: %w", b.address, err)
		case s.Gone:
			return s, nil, errors.Join(why, b.shut())
		case why == nil:
			b.why.Store(nil)
		default:
			b.why.Store(&why)
		}
		if good(&s) {
			return s, l, nil
		}
		select {
		case <-l.changed:
		case <-tick.C:
		case <-ctx.Done():
			return s, nil, errors.Join(why, context.Cause(ctx))
		}
	}
}

// attach waits until the link is ready, and attaches to the memory of this generation.
func (b *bridge) attach(ctx context.Context) (ntbfixed.Attached, error) {
	s, l, err := b.await(ctx, func(s *State) bool { return s.Ready })
	if err != nil {
		return ntbfixed.Attached{}, err
	}
	g := &generation{line: l, number: s.generation, down: make(chan struct{})}
	config := ntbfixed.Config{
		Own: b.memory(l, s.ownOffset, s.ownSize), Peer: b.memory(l, s.peerOffset, s.peerSize), Kind: ntb.Uncached, Backend: "kernel",
		Untrusted: true, RemoteCPU: true, Revocable: true, Zeros: true, Sole: true, Lingers: true,
		Silence: b.silence, Down: g.down, Interrupt: func(uint32, int) {}, Stop: l.events.halt,
	}
	if s.combining {
		config.Kind = ntb.WriteCombining
	}
	if bells := len(l.events.files) - 1; bells > 0 {
		config.Interrupt = func(_ uint32, bit int) { _ = l.port.ring(bit % bells) } // it fails when the link is down
		for k := range bells {
			config.Wait = append(config.Wait, func() error { return l.events.wait(1 + k) })
		}
	}
	l.events.resume()
	if g.Attachment, err = ntbfixed.Attach(config); err != nil {
		return ntbfixed.Attached{}, fmt.Errorf("ntbkernel: bridge %s, whose windows have %d and %d bytes: %w", b.address, s.ownSize, s.peerSize, err)
	}
	l.now.Store(g)
	return ntbfixed.Attached{Attachment: g, Window: s.window(b.window), Replaced: g.replaced}, nil
}

// memory is a part of the node that can be mapped, as much of it as is used.
func (b *bridge) memory(l *line, offset, size uint64) ntbfixed.Memory {
	return ntbfixed.Memory{FD: l.port.descriptor(), Offset: int64(offset), Len: int(min(size, uint64(ntbfixed.PageSize+b.window)))}
}

// generation is the attachment to the memory of one generation of the link.
type generation struct {
	ntb.Attachment // of ntbfixed; immutable
	line           *line
	number         uint32
	down           chan struct{} // closed by end
	once           sync.Once     // for end
}

func (g *generation) end() { g.once.Do(func() { close(g.down) }) }

// lasts reports whether a state is that of this generation.
func (g *generation) lasts(s *State) bool { return s.Ready && !s.Gone && s.generation == g.number }

// replaced reports whether the generation is over, and ends its session then.
func (g *generation) replaced() bool {
	s, err := g.line.look()
	return err != nil || !g.lasts(&s)
}

// Open implements ntb.Attachment. The error wraps ntbfixed.ErrReplaced if the generation is over: the session may
// have been opened in the memory of the next one.
func (g *generation) Open(ctx context.Context) (ntb.Device, error) {
	d, err := g.Attachment.Open(ctx)
	if !g.replaced() {
		return d, err
	}
	if err == nil {
		err = d.Close()
	}
	return nil, errors.Join(ntbfixed.ErrReplaced, err)
}
