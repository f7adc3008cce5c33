package proxy

import (
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/ntbnet/ntbnet/internal/unixsock"
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

// Config is what the forwarders of a program have in common.
type Config struct {
	// Fabric is the one to use. Nil means the default one of package sdp.
	Fabric *sdp.Fabric
	// DialTimeout limits how long a target may take to answer. 0 means only the
	// network's own limit.
	DialTimeout time.Duration
	// MaxConnections limits the open connections, including those whose target is
	// being dialled. Further clients are reset. 0 means no limit.
	MaxConnections int
	// Users are those who may connect by SDP. A map that listens elsewhere serves all users
	// only: others cannot be told there.
	Users Users
	// Logf writes a line, which has no newline at its end. It is called from many
	// goroutines. Nil means no log.
	Logf func(format string, args ...any)
}

// Forwarder serves one [Map]. It listens, and joins each connection to a new one to
// the target.
type Forwarder struct {
	m    Map          // immutable
	addr Endpoint     // immutable
	ln   net.Listener // immutable
	cfg  Config       // immutable

	limited limiter // for lines about targets and Accept
	crowded limiter // for lines about refused clients

	// ctx ends when connections must end. It also ends dials under way.
	ctx    context.Context
	cancel context.CancelFunc
	// stop is closed when listening ends.
	stop     chan struct{}
	stopOnce sync.Once
	// serving counts the connections' goroutines.
	serving sync.WaitGroup
	watch   watch

	mu       sync.Mutex
	draining bool            // no new connections; guarded by mu
	relays   map[*relay]bool // open connections; guarded by mu
	pending  int             // accepted connections whose target is being dialled; guarded by mu
	past     Stats           // sums, without the open connections; guarded by mu
}

// Listen listens on the left side of m. Its errors are one line that says what to
// do. The caller then calls Serve, and finally Close.
func Listen(ctx context.Context, m Map, cfg Config) (*Forwarder, error) {
	ln, err := listen(ctx, m.Listen, cfg)
	if err != nil {
		return nil, err
	}
	if cfg.Logf == nil {
		cfg.Logf = func(string, ...any) {}
	}
	return newForwarder(m, ln, cfg), nil
}

func newForwarder(m Map, ln net.Listener, cfg Config) *Forwarder {
	f := &Forwarder{
		m:      m,
		addr:   m.Listen,
		ln:     ln,
		cfg:    cfg,
		stop:   make(chan struct{}),
		relays: make(map[*relay]bool),
	}
	if m.Listen.Network != networkUnix {
		f.addr.Address = ln.Addr().String()
	}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Addr returns where it listens: the left side of the map, with the port that was
// picked if it was 0.
func (f *Forwarder) Addr() Endpoint { return f.addr }

// Target returns the right side of the map.
func (f *Forwarder) Target() Endpoint { return f.m.Target }

// Serve accepts connections until Drain or Close, and then returns nil. Temporary
// errors, such as a lack of descriptors, are logged, and Serve waits and tries
// again. Other errors end it.
func (f *Forwarder) Serve() error {
	wait := acceptBackoffMin
	for {
		c, err := f.ln.Accept()
		switch {
		case err == nil:
			wait = acceptBackoffMin
			f.start(unixsock.Plain(c))
			continue
		case f.stopped():
			return nil
		case !mayPass(err):
			return err
		}
		f.log("accept on %v: %v; trying again", f.addr, err)
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

// start serves one connection in goroutines of its own, or resets it.
func (f *Forwarder) start(client net.Conn) {
	switch f.admit(client) {
	case admitted:
	case full:
		f.logLimited(&f.crowded, 1, "%v has %d connections, as many as --max-connections allows: a client was refused",
			f.addr, f.cfg.MaxConnections)
		reset(client)
	case ending: // accepted when listening ended
		reset(client)
	}
}

// admission says what happens to a client.
type admission int

const (
	admitted admission = iota // it is served
	full                      // it is counted as refused
	ending                    // it came too late to be counted
)

func (f *Forwarder) admit(client net.Conn) admission {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.draining {
		return ending
	}
	if most := f.cfg.MaxConnections; most > 0 && len(f.relays)+f.pending >= most {
		f.past.Refused++
		return full
	}
	f.past.Total++
	f.pending++
	// This is called under mu and before draining is set. So it is never concurrent
	// with the Wait of Drain.
	f.serving.Go(func() { f.serve(client) })
	return admitted
}

func (f *Forwarder) serve(client net.Conn) {
	target, err := f.dial()
	if err != nil {
		if f.ctx.Err() == nil {
			f.log("cannot reach %v for a client of %v: %v", f.m.Target, f.addr, err)
		}
		f.mu.Lock()
		f.pending--
		f.past.Failed++
		f.mu.Unlock()
		reset(client) // last, so that the client is counted and logged before it sees the reset
		return
	}
	r := &relay{client: client, target: target}
	f.mu.Lock()
	f.pending--
	f.relays[r] = true
	ended := f.ctx.Err() != nil
	f.mu.Unlock()
	if ended { // abortAll has run already
		r.abort(errDrainEnded)
	}

	forget := f.watch.add(r)
	cut := r.run()
	forget()

	f.mu.Lock()
	delete(f.relays, r)
	if cut != nil {
		f.past.Aborted++
	}
	f.past.add(r)
	f.mu.Unlock()
}

func (f *Forwarder) dial() (net.Conn, error) {
	t := f.m.Target
	if t.Network == networkSDP {
		d := sdp.Dialer{Timeout: f.cfg.DialTimeout, Fabric: f.cfg.Fabric}
		return d.DialContext(f.ctx, t.Network, t.Address)
	}
	if t.Network == networkUnix {
		return f.dialUnix(t.Address)
	}
	d := net.Dialer{Timeout: f.cfg.DialTimeout}
	d.SetMultipathTCP(false) // see listen
	return d.DialContext(f.ctx, t.Network, t.Address)
}

// dialUnix connects to a path, whose process may be of another user.
func (f *Forwarder) dialUnix(path string) (net.Conn, error) {
	ctx := f.ctx
	if f.cfg.DialTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, f.cfg.DialTimeout)
		defer cancel()
	}
	c, err := unixsock.Dial(ctx, path)
	if err != nil {
		return nil, err
	}
	return unixsock.Plain(c), nil
}

// Drain stops listening and waits until all connections have ended. If ctx ends
// first, it resets the remaining connections and returns their number.
func (f *Forwarder) Drain(ctx context.Context) (cut int) {
	f.stopListening()
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
	f.stopListening()
	f.abortAll()
	f.serving.Wait()
	f.end()
}

// end ends what is left when no connection is.
func (f *Forwarder) end() {
	f.cancel()
	f.watch.close()
}

func (f *Forwarder) stopListening() {
	f.stopOnce.Do(func() {
		f.mu.Lock()
		f.draining = true
		f.mu.Unlock()
		close(f.stop)
		f.ln.Close()
	})
}

// abortAll ends all connections at once, and returns how many.
func (f *Forwarder) abortAll() int {
	f.mu.Lock()
	f.cancel() // serve aborts what it adds to relays after this
	relays := slices.Collect(maps.Keys(f.relays))
	cut := len(relays) + f.pending
	f.mu.Unlock()
	for _, r := range relays {
		r.abort(errDrainEnded)
	}
	return cut
}

// log writes a line about a target or about Accept, unless there are too many.
func (f *Forwarder) log(format string, args ...any) {
	f.logLimited(&f.limited, limitBurst, format, args...)
}

// logLimited writes a line if l allows it.
func (f *Forwarder) logLimited(l *limiter, burst int, format string, args ...any) {
	if left, ok := l.allow(burst); ok {
		if left > 0 {
			format += " (%d lines were left out)"
			args = append(args, left)
		}
		f.cfg.Logf(format, args...)
	}
}
