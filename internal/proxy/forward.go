package proxy

import (
	"context"
	"log/slog"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/sdp"
)

// env is what the forwarders of a program have in common.
type env struct {
	fabric *sdp.Fabric // nil for the default one of package sdp
	log    *slog.Logger
	passed []passed // sockets that the process was started with
	// hasAddress reports whether the fabric gives an address to a host. It is called for transparent maps alone.
	hasAddress func(netip.Addr) bool
}

// Forwarder serves one [Map] after the other, on one listener, or on one of TCP and one of SDP. It joins each connection to a new one to the target of
// the map that it serves then.
type Forwarder struct {
	addr    Endpoint // immutable
	env     env      // immutable
	log     journal
	door    door
	conns   connections
	targets targets
	dialer  dialer

	current  atomic.Pointer[generation] // for new connections
	changed  chan struct{}              // wakes check
	checking sync.WaitGroup             // check
}

// generation is a map that a forwarder serves, and how many it has served before.
type generation struct {
	m    *Map
	turn int
}

// open listens on the left side of m. Its errors are one line that says what to
// do. The caller then calls Serve, and finally Close.
func open(ctx context.Context, m *Map, env env) (*Forwarder, error) {
	f := newForwarder(m, env)
	var lns []net.Listener
	half, at := *m, m.Listen
	for _, network := range at.networks() {
		half.Listen = at.half(network)
		ln, err := env.passedTo(half.Listen)
		if ln == nil && err == nil {
			ln, err = listen(ctx, &half, f.allow, env.fabric)
		}
		if err != nil {
			for _, ln := range lns {
				ln.Close()
			}
			f.conns.cancel()
			return nil, err
		}
		lns = append(lns, ln)
		if network != networkUnix {
			at.Address = ln.Addr().String() // which has the port that was picked
		}
	}
	f.on(lns...)
	return f, nil
}

func newForwarder(m *Map, env env) *Forwarder {
	f := &Forwarder{addr: m.Listen, env: env, log: journal{Logger: env.log, limited: newLimiter(limitBurst), crowded: newLimiter(1)}, changed: make(chan struct{}, 1)}
	f.current.Store(&generation{m: m})
	f.conns.init(m)
	f.door.listening, f.door.end = context.WithCancel(context.Background())
	f.targets = targets{log: &f.log, health: make(map[Endpoint]*health)}
	f.dialer = dialer{ctx: f.conns.ctx, fabric: env.fabric, targets: &f.targets}
	return f
}

// on sets the listeners.
func (f *Forwarder) on(lns ...net.Listener) {
	f.door.lns = lns
	if f.addr.Network != networkUnix {
		f.addr.Address = lns[0].Addr().String()
	}
	f.log.at = f.addr.String()
	f.checking.Go(f.check)
}

// serves returns the map for new connections.
func (f *Forwarder) serves() *Map { return f.current.Load().m }

// allow returns an error for a user who may not connect.
func (f *Forwarder) allow(p sdp.Peer) error { return f.serves().Users.allow(p) }

// use has new connections be of another map with the same listener. Those that are open go on for a time, and are cut
// then. It is called by one goroutine.
func (f *Forwarder) use(m *Map, most time.Duration) {
	before := f.current.Load()
	if r := m.rights(); r != before.m.rights() {
		if err := r.Set(m.Listen.Address); err != nil {
			f.log.Error("cannot change the socket", "map", f.log.at, "reason", err)
		}
	}
	next := &generation{m, before.turn + 1}
	f.current.Store(next)
	f.conns.limit(m)
	wake(f.changed)
	timer := time.AfterFunc(most, func() { f.conns.expire(next.turn) })
	context.AfterFunc(f.conns.ctx, func() { timer.Stop() })
}

// Addr returns where it listens: the left side of the map, with the port that was
// picked if it was 0.
func (f *Forwarder) Addr() Endpoint { return f.addr }

// Stats returns the counters. It may be called at any time, even after Close.
func (f *Forwarder) Stats() Stats { return f.conns.stats() }

// Serve accepts connections until Drain or Close, and then returns nil. Temporary
// errors, such as a lack of descriptors, are logged, and Serve waits and tries
// again. Other errors end it, and it returns the first.
func (f *Forwarder) Serve() error { return f.door.serve(&f.log, f.start) }

// start serves one connection in goroutines of its own, or resets it. It returns when there is room, where clients
// are to wait.
func (f *Forwarder) start(c net.Conn) {
	e := &lastLine{client: unixsock.Plain(c), uid: userOf(c), begun: time.Now()}
	m := f.serves()
	cause := m.turnsAway(c)
	if cause == "" && m.Transparent {
		cause = f.env.findTarget(e)
	}
	if cause != "" {
		f.conns.count(0, func(s *Stats) { s.Refused++ })
		f.refuse(e, cause)
		return
	}
	for {
		now := f.current.Load()
		cause, wait := f.conns.admit(now.m)
		switch {
		case cause == "":
			e.m = now.m
			// Serve is counted too. So this is never the first one beside the Wait of Drain.
			f.door.work.Go(func() { f.serve(e, now.turn) })
			return
		case cause == ending:
			reset(e.client)
			return
		case wait == 0:
			f.refuse(e, cause)
			return
		}
		select {
		case <-time.After(wait):
		case <-f.conns.freed:
		case <-f.conns.ctx.Done():
		}
	}
}

func (f *Forwarder) refuse(e *lastLine, cause string) {
	e.result, e.by, e.cause = refused, byProxy, cause
	f.log.ended(e)
	reset(e.client)
}

// turnsAway returns the option by which a client may not connect, or "".
func (m *Map) turnsAway(c net.Conn) string {
	switch {
	case m.wantsHeader(c):
		if !from(m.Proxies, c.RemoteAddr()) {
			return acceptProxy
		}
	case networkOf(c) == networkTCP && len(m.Sources) > 0 && !from(m.Sources, c.RemoteAddr()):
		return allowFrom
	}
	if u, ok := c.(*unixsock.Conn); ok && !m.Users.All() {
		p, err := hostdir.PeerOf(u)
		if err != nil || m.Users.allow(sdp.Peer{PID: p.PID, UID: p.UID, GID: p.GID, Groups: p.Groups}) != nil {
			return "allow-user"
		}
	}
	return ""
}

// serve serves a connection of a generation until its end.
func (f *Forwarder) serve(e *lastLine, turn int) {
	if e.m.Transparent {
		defer f.dialer.own.forget(e)
	}
	if cause := takeHeader(f.conns.ctx, e); cause != "" {
		f.conns.count(-1, func(s *Stats) { s.Total--; s.Refused++ })
		f.refuse(e, cause)
		return
	}
	target, err := f.dialer.dial(e)
	e.connect = time.Since(e.begun)
	if err != nil {
		e.result, e.by, e.cause = failed, byTarget, dialCause(err)
		f.conns.count(-1, func(s *Stats) { s.Failed++ })
		if f.conns.ctx.Err() != nil {
			err = errDrainEnded
		}
		if err == errDrainEnded || err == errRedirectedAgain {
			e.by, e.cause = byProxy, err.Error()
		}
		f.log.ended(e)
		reset(e.client) // last, so that the client is counted and logged before it sees the reset
		return
	}
	r := &relay{client: e.client, target: target, turn: turn, about: e}
	r.watch.idle, r.watch.half, r.watch.keepAlive = e.m.IdleTimeout, e.m.HalfClosed, e.m.KeepAlive
	e.relay = r
	f.targets.opened(e, 1)
	f.conns.begin(r)

	cut := r.run()

	e.by, e.cause = side(r.first.Load()), causeOf(cut)
	switch {
	case cut != nil:
		e.result = aborted
	case e.by == byClient && r.toTarget.bytes.Load() == 0 && r.fromTarget.bytes.Load() == 0:
		e.result = checked
	}
	f.targets.opened(e, -1)
	f.conns.end(r, e.result)
	if e.result != checked {
		f.log.ended(e)
	}
}

// Drain stops listening and waits until all connections have ended. If ctx ends
// first, it resets the remaining connections and returns their number.
func (f *Forwarder) Drain(ctx context.Context) (cut int) {
	f.door.shut(handover)
	done := make(chan struct{})
	go func() {
		f.door.work.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		cut = f.conns.cut()
		<-done
	}
	f.end()
	return cut
}

// Close stops listening and resets all connections. When it returns, nothing of the
// forwarder is left.
func (f *Forwarder) Close() {
	f.door.shut(net.Listener.Close)
	f.conns.cut()
	f.door.work.Wait()
	f.end()
}

// end ends what is left when no connection is.
func (f *Forwarder) end() {
	f.conns.cancel()
	f.door.close()
	f.checking.Wait()
}
