package proxy

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/hostdir"
	"github.com/ntbnet/ntbnet/internal/shm/unixsock"
	"github.com/ntbnet/ntbnet/sdp"
)

// After an error of Accept, Serve waits for this long, and for twice as long after
// each further error.
const (
	acceptBackoffMin = 5 * time.Millisecond
	acceptBackoffMax = time.Second
)

// errDrainEnded is the cause for connections that are cut because they outlive
// Drain or Close.
var errDrainEnded = errors.New("the proxy ends")

// errMapGone is the cause for connections that are cut because they outlive their map.
var errMapGone = errors.New("the map was changed or removed")

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
	addr Endpoint       // immutable
	lns  []net.Listener // one for each of addr's networks; immutable
	env  env            // immutable

	limited limiter // for lines about targets and Accept
	crowded limiter // for lines about refused clients

	// ctx ends when connections must end. It also ends dials under way.
	ctx    context.Context
	cancel context.CancelFunc
	// stop is closed when listening ends.
	stop     chan struct{}
	changed  chan struct{} // wakes check
	freed    chan struct{} // wakes a client that waits
	stopOnce sync.Once
	// serving counts the connections' goroutines.
	serving  sync.WaitGroup
	checking sync.WaitGroup // check
	own      ownWays        // of transparent maps

	mu       sync.Mutex
	m        *Map                 // for new connections; guarded by mu
	turn     int                  // how many maps there were before m; guarded by mu
	health   map[Endpoint]*health // of targets; guarded by mu
	next     int                  // place of the last connection among the targets, for roundRobin; guarded by mu
	tokens   float64              // connections that maxRate lets in now; guarded by mu
	filled   time.Time            // when tokens was last updated; guarded by mu
	expired  int                  // connections of turns below it are cut; guarded by mu
	timers   []*time.Timer        // each raises expired; guarded by mu
	draining bool                 // no new connections; guarded by mu
	relays   map[*relay]bool      // open connections; guarded by mu
	pending  int                  // accepted connections whose target is being dialled; guarded by mu
	past     Stats                // sums, without the open connections; guarded by mu
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
			f.cancel()
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
	f := &Forwarder{m: m, addr: m.Listen, env: env, stop: make(chan struct{}), changed: make(chan struct{}, 1), freed: make(chan struct{}, 1),
		relays: make(map[*relay]bool), health: make(map[Endpoint]*health)}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// on sets the listeners.
func (f *Forwarder) on(lns ...net.Listener) {
	f.lns = lns
	if f.m.Listen.Network != networkUnix {
		f.addr.Address = lns[0].Addr().String()
	}
	f.checking.Go(f.check)
}

// serves returns the map for new connections.
func (f *Forwarder) serves() *Map {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.m
}

// allow returns an error for a user who may not connect.
func (f *Forwarder) allow(p sdp.Peer) error { return f.serves().Users.allow(p) }

// use has new connections be of another map with the same listener. Those that are open go on for a time, and are cut
// then.
func (f *Forwarder) use(m *Map, most time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if r := m.rights(); r != f.m.rights() {
		if err := r.Set(m.Listen.Address); err != nil {
			f.env.log.Error("cannot change the socket", "map", f.addr.String(), "reason", err)
		}
	}
	f.m = m
	f.turn++
	wake(f.changed)
	wake(f.freed)
	if f.draining || len(f.relays)+f.pending == 0 {
		return
	}
	turn := f.turn
	f.timers = append(f.timers, time.AfterFunc(most, func() { f.expire(turn) }))
}

// expire cuts the connections of turns below one.
func (f *Forwarder) expire(turn int) {
	f.mu.Lock()
	f.expired = max(f.expired, turn)
	var old []*relay
	for r := range f.relays {
		if r.turn < turn {
			old = append(old, r)
		}
	}
	f.mu.Unlock()
	for _, r := range old {
		r.abort(errMapGone, byProxy)
	}
}

// Addr returns where it listens: the left side of the map, with the port that was
// picked if it was 0.
func (f *Forwarder) Addr() Endpoint { return f.addr }

// Serve accepts connections until Drain or Close, and then returns nil. Temporary
// errors, such as a lack of descriptors, are logged, and Serve waits and tries
// again. Other errors end it, and it returns the first.
func (f *Forwarder) Serve() error {
	f.mu.Lock()
	if f.draining {
		f.mu.Unlock()
		return nil
	}
	f.serving.Add(1) // so that one that is accepted while listening ends is served
	f.mu.Unlock()
	defer f.serving.Done()
	ended := make(chan error, len(f.lns))
	for _, ln := range f.lns {
		f.serving.Go(func() { ended <- f.accept(ln) })
	}
	for range f.lns {
		if err := <-ended; err != nil {
			return err
		}
	}
	return nil
}

// accept is Serve for one listener.
func (f *Forwarder) accept(ln net.Listener) error {
	wait := acceptBackoffMin
	for {
		c, err := ln.Accept()
		switch {
		case err == nil:
			wait = acceptBackoffMin
			f.start(c)
			continue
		case f.stopped():
			return nil
		case !mayPass(err):
			return err
		}
		if left, ok := f.limited.allow(limitBurst); ok {
			f.env.log.Warn("cannot accept, tries again", "map", f.addr.String(), "reason", err, "left_out", left)
		}
		if !f.sleep(wait) {
			return nil
		}
		wait = min(2*wait, acceptBackoffMax)
	}
}

// mayPass reports whether an error of Accept concerns one connection or resources,
// and not the listener itself.
func mayPass(err error) bool {
	for _, fatal := range []error{net.ErrClosed, syscall.EBADF, syscall.EINVAL, syscall.ENOTSOCK, syscall.EOPNOTSUPP} {
		if errors.Is(err, fatal) {
			return false
		}
	}
	return true
}

// sleep returns false if listening ended meanwhile.
func (f *Forwarder) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-f.stop:
		return false
	}
}

func (f *Forwarder) stopped() bool {
	select {
	case <-f.stop:
		return true
	default:
		return false
	}
}

// start serves one connection in goroutines of its own, or resets it. It returns when there is room, where clients
// are to wait.
func (f *Forwarder) start(c net.Conn) {
	e := &lastLine{client: unixsock.Plain(c), uid: userOf(c), begun: time.Now()}
	m := f.serves()
	cause := m.turnsAway(c)
	if cause == "" && m.Transparent {
		cause = f.findTarget(e)
	}
	if cause != "" {
		f.mu.Lock()
		f.past.Refused++
		f.mu.Unlock()
		f.refuse(e, cause)
		return
	}
	for {
		cause, wait := f.admit(e)
		switch {
		case cause == "":
			return
		case cause == ending:
			reset(e.client)
			return
		case wait == 0:
			f.refuse(e, cause)
			return
		}
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-f.freed:
		case <-f.ctx.Done():
		}
		timer.Stop()
	}
}

func (f *Forwarder) refuse(e *lastLine, cause string) {
	e.result, e.by, e.cause = refused, byProxy, cause
	f.logEnd(e)
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

// ending is the cause for a client that came when connections were cut. It is not counted.
const ending = "ending"

func (f *Forwarder) serve(e *lastLine, turn int) {
	if e.m.Transparent {
		defer f.own.forget(e)
	}
	if cause := f.takeHeader(e); cause != "" {
		f.mu.Lock()
		f.pending--
		f.past.Total--
		f.past.Refused++
		f.mu.Unlock()
		wake(f.freed)
		f.refuse(e, cause)
		return
	}
	target, err := f.dial(e)
	e.connect = time.Since(e.begun)
	if err != nil {
		e.result, e.by, e.cause = failed, byTarget, dialCause(err)
		f.mu.Lock()
		f.pending--
		f.past.Failed++
		f.mu.Unlock()
		wake(f.freed)
		if f.ctx.Err() != nil {
			err = errDrainEnded
		}
		if err == errDrainEnded || err == errRedirectedAgain {
			e.by, e.cause = byProxy, err.Error()
		}
		f.logEnd(e)
		reset(e.client) // last, so that the client is counted and logged before it sees the reset
		return
	}
	r := &relay{client: e.client, target: target, turn: turn, about: e}
	r.watch.idle, r.watch.half, r.watch.keepAlive = e.m.IdleTimeout, e.m.HalfClosed, e.m.KeepAlive
	e.relay = r
	f.mu.Lock()
	f.pending--
	f.opened(e, 1)
	f.relays[r] = true
	ended, expired := f.ctx.Err() != nil, turn < f.expired
	f.mu.Unlock()
	switch { // abortAll or expire has run already
	case ended:
		r.abort(errDrainEnded, byProxy)
	case expired:
		r.abort(errMapGone, byProxy)
	}

	cut := r.run()

	e.by, e.cause = side(r.first.Load()), causeOf(cut)
	f.mu.Lock()
	delete(f.relays, r)
	switch {
	case cut != nil:
		f.past.Aborted++
		e.result = aborted
	case e.by == byClient && r.toTarget.bytes.Load() == 0 && r.fromTarget.bytes.Load() == 0:
		f.past.Total--
		f.past.Checks++
		e.result = checked
	}
	f.past.add(r)
	f.opened(e, -1)
	f.mu.Unlock()
	wake(f.freed)
	if e.result != checked {
		f.logEnd(e)
	}
}

// Drain stops listening and waits until all connections have ended. If ctx ends
// first, it resets the remaining connections and returns their number.
func (f *Forwarder) Drain(ctx context.Context) (cut int) {
	f.stopListening(handover)
	done := make(chan struct{})
	go func() {
		f.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		cut = f.abortAll()
		<-done
	}
	f.end()
	return cut
}

// Close stops listening and resets all connections. When it returns, nothing of the
// forwarder is left.
func (f *Forwarder) Close() {
	f.stopListening(net.Listener.Close)
	f.abortAll()
	f.serving.Wait()
	f.end()
}

// end ends what is left when no connection is.
func (f *Forwarder) end() {
	f.cancel()
	for _, ln := range f.lns {
		if l, ok := ln.(*sdp.Listener); ok {
			l.Close() // if it was handed over
		}
	}
	f.mu.Lock()
	for _, t := range f.timers {
		t.Stop()
	}
	f.mu.Unlock()
	f.checking.Wait()
}

// stopListening has stop end each listener.
func (f *Forwarder) stopListening(stop func(net.Listener) error) {
	f.stopOnce.Do(func() {
		f.mu.Lock()
		f.draining = true
		f.mu.Unlock()
		close(f.stop)
		for _, ln := range f.lns {
			stop(ln)
		}
	})
}

// handover leaves the port of SDP to a proxy that takes the place of this one. end closes its listener.
func handover(ln net.Listener) error {
	if l, ok := ln.(*sdp.Listener); ok {
		l.Handover()
		return nil
	}
	return ln.Close()
}

// abortAll ends all connections at once, and returns how many.
func (f *Forwarder) abortAll() int {
	f.mu.Lock()
	f.cancel() // serve aborts what it adds to relays after this
	relays := slices.Collect(maps.Keys(f.relays))
	cut := len(relays) + f.pending
	f.mu.Unlock()
	for _, r := range relays {
		r.abort(errDrainEnded, byProxy)
	}
	return cut
}
