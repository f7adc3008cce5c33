package main

import (
	"context"
	"errors"
	"log"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/ntbnet/ntbnet/internal/proxy"
	"github.com/ntbnet/ntbnet/sdp"
)

// server runs the forwarders, from listening to the end.
type server struct {
	options
	log        *log.Logger
	signals    <-chan os.Signal
	forwarders []*proxy.Forwarder  // immutable after listen
	registered *proxy.Registration // likewise
}

// listen opens all maps or none. It refuses maps that lead back to themselves.
func (s *server) listen(fabric *sdp.Fabric) error {
	err := s.open(fabric)
	if err == nil {
		err = s.register(fabric)
	}
	if err != nil {
		for _, f := range s.forwarders {
			f.Close()
		}
		return err
	}
	for _, f := range s.forwarders {
		s.logf("listening on %v, forwarding to %v", f.Addr(), f.Target())
	}
	return nil
}

// register publishes to other proxies of the fabric which maps this one serves.
func (s *server) register(fabric *sdp.Fabric) error {
	if len(s.forwarders) == 0 {
		s.registered = new(proxy.Registration)
		return nil
	}
	var err error
	s.registered, err = proxy.Register(context.Background(), "", s.forwarders)
	if errors.Is(err, proxy.ErrNoFabric) && fabric == nil {
		// Without SDP the maps need no fabric.
		s.log.Printf("%v; a loop through them ends at --max-connections", err)
		return nil
	}
	return err
}

func (s *server) open(fabric *sdp.Fabric) error {
	cfg := proxy.Config{Fabric: fabric, DialTimeout: s.dialTimeout, MaxConnections: s.maxConnections, Users: s.users, Logf: s.log.Printf}
	for _, m := range s.maps {
		f, err := proxy.Listen(context.Background(), m, cfg)
		if err != nil {
			return err
		}
		s.forwarders = append(s.forwarders, f)
	}
	return nil
}

// serve runs until a signal or a failed listener, drains, and returns the exit
// status.
func (s *server) serve() int {
	failed := make(chan struct{}, len(s.forwarders))
	for _, f := range s.forwarders {
		go func() {
			if err := f.Serve(); err != nil {
				s.log.Printf("cannot accept on %v any more: %v", f.Addr(), err)
				failed <- struct{}{}
			}
		}()
	}
	status := s.waitForEnd(failed)
	open := 0
	for _, f := range s.forwarders {
		open += f.Stats().Open
	}
	s.logf("stopping; %d connections have %v to end", open, s.drainTimeout)
	cut := s.drain()
	if s.stats {
		s.printStats()
	}
	if cut > 0 {
		s.log.Printf("cut %d connections that had not ended", cut)
	}
	return status
}

func (s *server) waitForEnd(failed <-chan struct{}) (status int) {
	for {
		select {
		case sig := <-s.signals:
			if !slices.Contains(countersSignals, sig) {
				return statusOK
			}
			s.printStats()
		case <-failed:
			return statusFailed
		}
	}
}

// drain stops listening and lets the connections end, until the time is over or
// another signal comes. It returns how many it cut.
func (s *server) drain() (cut int64) {
	s.registered.Close() // first: once an address is free, another proxy may listen there
	ctx, cancel := context.WithTimeout(context.Background(), s.drainTimeout)
	defer cancel()
	done := make(chan int64, 1)
	go func() {
		var sum atomic.Int64
		var wg sync.WaitGroup
		for _, f := range s.forwarders {
			wg.Go(func() { sum.Add(int64(f.Drain(ctx))) })
		}
		wg.Wait()
		done <- sum.Load()
	}()
	for {
		select {
		case cut = <-done:
			return cut
		case sig := <-s.signals:
			if slices.Contains(countersSignals, sig) {
				s.printStats()
			} else {
				cancel()
			}
		}
	}
}

func (s *server) printStats() {
	for _, f := range s.forwarders {
		s.log.Printf("%v to %v: %v", f.Addr(), f.Target(), f.Stats())
	}
}

// logf logs a message that is not an error.
func (s *server) logf(format string, args ...any) {
	if !s.quiet {
		s.log.Printf(format, args...)
	}
}
