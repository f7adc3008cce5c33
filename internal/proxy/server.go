package proxy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/internal/metrics"
	"github.com/ntbnet/ntbnet/sdp"
)

// Server serves the maps of a [Config], and may change to those of another one. Its methods are called by one
// goroutine.
type Server struct {
	env    env
	cfg    *Config      // nil before the first Apply
	fabric Fabric       // this process's, if it is open
	web    *http.Server // nil if nothing is served to operators
	lines  *LogQueue    // behind the log of env

	failed chan error     // from the goroutines that serve
	old    sync.WaitGroup // removed forwarders that drain
	oldCtx context.Context
	cutOld context.CancelFunc

	// mu guards what operators may ask for. All of it is written by the one goroutine.
	mu                  sync.Mutex
	maps                []*Forwarder // in the order of cfg.Maps
	draining            bool
	reloads, badReloads int
}

// NewServer returns a Server without maps, which logs its connections. The lines of the log go to a queue.
func NewServer(log *slog.Logger, lines *LogQueue) *Server {
	s := &Server{env: env{log: log}, lines: lines, failed: make(chan error, 1)}
	s.oldCtx, s.cutOld = context.WithCancel(context.Background())
	return s
}

// Failed returns errors of listeners that accept no more.
func (s *Server) Failed() <-chan error { return s.failed }

// Fabric returns the fabric that the maps need, with what this process is in it. It returns false if they need none.
func (s *Server) Fabric() (f Fabric, ownsLinks, ok bool) {
	if s.env.fabric == nil {
		return Fabric{}, false, false
	}
	return s.fabric, s.env.fabric.OwnsLinks(), true
}

// Apply serves the maps of c in place of those before. A map that is listened on as before takes new connections
// with its new targets and options; the open ones of changed and removed maps go on for c.DrainTimeout. If there is an
// error, which is one line that says what to do, nothing has changed.
func (s *Server) Apply(ctx context.Context, c *Config) (err error) {
	if err := s.join(c); err != nil {
		return err
	}
	err = s.fabric.checkTargets(ctx, c, func(ctx context.Context, address string) error {
		_, err := s.env.fabric.ResolveAddr(ctx, address)
		return err
	})
	if err != nil {
		return err
	}
	if err := s.env.checkPassed(c); err != nil {
		return err
	}
	var undo []func()
	defer func() {
		if err != nil {
			for _, f := range undo {
				f()
			}
		}
	}()
	all, rest := make([]served, len(c.Maps)), slices.Clone(s.maps)
	for i := range c.Maps {
		o := &all[i]
		o.m = &c.Maps[i]
		if at := slices.IndexFunc(rest, func(f *Forwarder) bool { return f.serves().Listen == o.m.Listen }); at >= 0 {
			o.f = rest[at]
			if err := o.f.serves().mayBecome(o.m); err != nil {
				return err
			}
			rest = slices.Delete(rest, at, at+1)
			continue
		}
		if o.f, err = open(ctx, o.m, s.env); err != nil {
			return err
		}
		o.fresh = true
		undo = append(undo, o.f.Close)
	}
	var operators net.Listener
	changed := s.cfg == nil || s.cfg.Metrics != c.Metrics
	if changed && c.Metrics != "" {
		if operators, err = metrics.Listen(ctx, c.Metrics); err != nil {
			return fmt.Errorf("metrics %s: %w", c.Metrics, rootCause(err))
		}
		undo = append(undo, func() { operators.Close() })
	}
	if err := s.env.checkLoops(ctx, all); err != nil {
		return err
	}
	if changed {
		s.serveOperators(operators)
	}
	s.cfg = c
	s.mu.Lock()
	s.maps = nil
	for _, o := range all {
		s.maps = append(s.maps, o.f)
	}
	s.mu.Unlock()
	for _, o := range all {
		switch {
		case o.fresh:
			go s.serve(o.f)
		case !reflect.DeepEqual(o.f.serves(), o.m):
			o.f.use(o.m, c.DrainTimeout)
		}
	}
	for _, f := range rest {
		s.remove(f, c)
	}
	return nil
}

// mayBecome returns an error if a listener of m cannot serve another map.
func (m *Map) mayBecome(other *Map) error {
	switch {
	case m.Listen.Network == networkSDP && m.Users.All() != other.Users.All():
		return fmt.Errorf("%v is for some users alone, or was: that takes a restart, or another port", m.Listen)
	case m.Transparent != other.Transparent:
		return fmt.Errorf("%v is transparent, or was: that takes a restart, or another port", m.Listen)
	}
	return nil
}

// join opens the fabric, unless it is open, if c is to own links or a map needs SDP. Otherwise a proxy that only dials
// would attach and detach with every connection.
func (s *Server) join(c *Config) error {
	if before := s.cfg; before != nil && (c.Own != before.Own || c.Log != before.Log) {
		return errors.New("own and log cannot be changed while the proxy runs; restart it")
	}
	if !c.needsFabric() || s.env.fabric != nil {
		return nil
	}
	fabric, err := sdp.Open("")
	if err != nil {
		return fmt.Errorf("cannot open the SDP fabric: %w", err)
	}
	is, err := findFabric()
	if err != nil { // it has changed since it was opened
		fabric.Close()
		return fmt.Errorf("cannot find the SDP fabric: %w", err)
	}
	if c.Own && !fabric.OwnsLinks() && !is.Shares {
		fabric.Close()
		return fmt.Errorf("--own: the fabric is %q, want one with node=I and nodes=N, as in SDP_FABRIC='ring:lab?node=2&nodes=5'", is.Text)
	}
	s.env.fabric, s.fabric, s.env.hasAddress = fabric, is, is.hasAddress
	return nil
}

func (s *Server) serve(f *Forwarder) {
	if err := f.Serve(); err != nil {
		select {
		case s.failed <- fmt.Errorf("cannot accept on %v any more: %w", f.Addr(), err):
		default:
		}
	}
}

// serveOperators serves on ln, which may be nil, in place of the listener before.
func (s *Server) serveOperators(ln net.Listener) {
	if s.web != nil {
		s.web.Close()
		s.web = nil
	}
	if ln != nil {
		s.web = metrics.Serve(ln, s.handler())
	}
}

// remove stops listening at once, and lets connections end.
func (s *Server) remove(f *Forwarder, c *Config) {
	f.door.shut(net.Listener.Close)
	s.env.log.Info("removed", "map", f.Addr().String(), "open", f.Stats().Open, "drain_timeout", c.DrainTimeout.String())
	ctx, cancel := context.WithTimeout(s.oldCtx, c.DrainTimeout)
	s.old.Go(func() {
		defer cancel()
		if cut := f.Drain(ctx); cut > 0 {
			s.env.log.Warn("cut connections of a removed map", "map", f.Addr().String(), "connections", cut)
		}
	})
}

// Reloaded counts that the file was read again, and whether that changed the maps.
func (s *Server) Reloaded(taken bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if taken {
		s.reloads++
	} else {
		s.badReloads++
	}
}

// Maps returns the forwarders, in the order of the maps.
func (s *Server) Maps() []*Forwarder { return s.maps }

// Drain stops listening and waits until all connections have ended. If ctx ends first, it resets the remaining
// connections and returns their number. The Server is of no use after it.
func (s *Server) Drain(ctx context.Context) (cut int) {
	s.mu.Lock()
	s.draining = true
	s.mu.Unlock()
	stop := context.AfterFunc(ctx, s.cutOld)
	defer stop()
	var sum atomic.Int64
	var wg sync.WaitGroup
	for _, f := range s.maps {
		wg.Go(func() { sum.Add(int64(f.Drain(ctx))) })
	}
	wg.Wait()
	s.old.Wait()
	s.cutOld()
	return int(sum.Load())
}

// Close ends what is left after Drain, or after an Apply that failed first.
func (s *Server) Close() {
	s.cutOld()
	s.serveOperators(nil)
	for _, p := range s.env.passed {
		p.file.Close()
	}
	if s.env.fabric != nil {
		s.env.fabric.Close()
	}
}
