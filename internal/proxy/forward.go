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

	"github.com/ntbnet/ntbnet/sdp"
)

// Accept waits this long after an error, twice as long after each further one.
const (
	acceptBackoffMin = 5 * time.Millisecond
	acceptBackoffMax = time.Second
)

// errDrainEnded is why connections are cut that outlive Drain or Close.
var errDrainEnded = errors.New("the proxy ends")

// Config is what the forwarders of a program have in common.
type Config struct {
	// Host is the SDP host to use. Nil means that of the sdp package.
	Host *sdp.Host
	// DialTimeout limits how long a target may take to answer. 0 means no limit
	// but the network's own.
	DialTimeout time.Duration
	// MaxConnections is how many connections may be open at once, those included whose
	// target is being dialled. Further clients are reset. 0 means no limit.
	MaxConnections int
	// Logf writes a line, without a newline at its end. It is called from many
	// goroutines. Nil means no log.
	Logf func(format string, args ...any)
}

// Forwarder serves one [Map]: it listens, and joins each connection to a new one
// to the target.
type Forwarder struct {
	m    Map          // immutable
	addr Endpoint     // immutable
	ln   net.Listener // immutable
	cfg  Config       // immutable

	limited limiter // of lines about targets and Accept
	crowded limiter // of lines about clients that were refused

	// ctx ends when connections must; it ends dials under way.
	ctx    context.Context
	cancel context.CancelFunc
	// stop is closed when listening ends.
	stop     chan struct{}
	stopOnce sync.Once
	// serving counts the connections' goroutines.
	serving sync.WaitGroup

	mu       sync.Mutex
	draining bool            // guarded by mu; no new connections
	relays   map[*relay]bool // guarded by mu; those open
	pending  int             // guarded by mu; accepted, target being dialled
	past     Stats           // guarded by mu; sums, without those open
}

// Listen listens on the left side of m. Its errors are one line that says what
// to do. Call Serve next, and Close in the end.
func Listen(ctx context.Context, m Map, cfg Config) (*Forwarder, error) {
	ln, err := listen(ctx, m.Listen, cfg.Host)
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

// Addr is what is listened on: the left side of the map, with the port that was
// picked if it said 0.
func (f *Forwarder) Addr() Endpoint { return f.addr }

// Target is the right side of the map.
func (f *Forwarder) Target() Endpoint { return f.m.Target }

// Serve accepts connections until Drain or Close, and then returns nil. Errors
// that may pass, such as a lack of descriptors, are logged and waited out;
// others end it.
func (f *Forwarder) Serve() error {
	wait := acceptBackoffMin
	for {
		c, err := f.ln.Accept()
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
		f.log("accept on %v: %v; trying again", f.addr, err)
		if !f.sleep(wait) {
			return nil
		}
		wait = min(2*wait, acceptBackoffMax)
	}
}

// mayPass tells if an error of Accept is about one connection or about
// resources, not about the listener itself.
func mayPass(err error) bool {
	for _, fatal := range []error{net.ErrClosed, syscall.EBADF, syscall.EINVAL, syscall.ENOTSOCK, syscall.EOPNOTSUPP} {
		if errors.Is(err, fatal) {
			return false
		}
	}
	return true
}

// sleep reports false if listening ended meanwhile.
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
		f.say(&f.crowded, 1, "%v has %d connections, as many as --max-connections allows: a client was refused",
			f.addr, f.cfg.MaxConnections)
		reset(client)
	case ending: // accepted in the moment when listening ended
		reset(client)
	}
}

// admission is what becomes of a client.
type admission int

const (
	admitted admission = iota // it is served
	full                      // it is counted as refused
	ending                    // it came too late to count
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
	// Under mu and before draining is set, so never at the same time as the
	// Wait of Drain.
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
		reset(client) // last: who sees it finds it counted and logged
		return
	}
	r := &relay{client: client, target: target}
	f.mu.Lock()
	f.pending--
	f.relays[r] = true
	ended := f.ctx.Err() != nil
	f.mu.Unlock()
	if ended { // abortAll has been here already
		r.abort(errDrainEnded)
	}

	cut := r.run()

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
		d := sdp.Dialer{Timeout: f.cfg.DialTimeout, Host: f.cfg.Host}
		return d.DialContext(f.ctx, t.Network, t.Address)
	}
	d := net.Dialer{Timeout: f.cfg.DialTimeout}
	d.SetMultipathTCP(false) // see listen
	return d.DialContext(f.ctx, t.Network, t.Address)
}

// Drain stops listening and waits until all connections have ended. When ctx
// ends first, it resets those that are left and returns how many these were.
func (f *Forwarder) Drain(ctx context.Context) (cut int) {
	f.stopListening()
	done := make(chan struct{})
	go func() {
		f.serving.Wait()
		close(done)
	}()
	select {
	case <-done:
		f.cancel()
		return 0
	case <-ctx.Done():
		cut = f.abortAll()
		<-done
		return cut
	}
}

// Close stops listening and resets all connections. On return nothing of the
// forwarder is left.
func (f *Forwarder) Close() {
	f.stopListening()
	f.abortAll()
	f.serving.Wait()
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
	f.cancel() // what serve puts into relays after this, it aborts itself
	relays := slices.Collect(maps.Keys(f.relays))
	cut := len(relays) + f.pending
	f.mu.Unlock()
	for _, r := range relays {
		r.abort(errDrainEnded)
	}
	return cut
}

// log writes a line about a target or about Accept, if there are not too many.
func (f *Forwarder) log(format string, args ...any) { f.say(&f.limited, limitBurst, format, args...) }

// say writes a line if l allows it.
func (f *Forwarder) say(l *limiter, burst int, format string, args ...any) {
	if left, ok := l.allow(burst); ok {
		if left > 0 {
			format += " (%d lines were left out)"
			args = append(args, left)
		}
		f.cfg.Logf(format, args...)
	}
}
