package sdp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"syscall"
)

// portTries is how often a port that is free for TCP and for SDP is looked for.
const portTries = 16

// listenBoth is network "tcp": TCP and SDP on one port.
func (lc *ListenConfig) listenBoth(ctx context.Context, network, address string) (net.Listener, error) {
	var config net.ListenConfig
	if lc.TCP != nil {
		config = *lc.TCP
	}
	h, done, err := lc.Host.use()
	if err != nil && lc.Host != nil {
		return nil, opError(opListen, nil, nil, err)
	}
	if err != nil {
		defaultHost.counters.listenTCPOnly.Add(1)
		return config.Listen(ctx, network, address)
	}
	defer done()
	_, asked, err := splitAddress(ctx, address)
	if err != nil {
		return nil, opError(opListen, nil, nil, err)
	}
	for try := 1; ; try++ {
		tcp, err := config.Listen(ctx, network, address)
		if err != nil {
			return nil, err
		}
		port := tcp.Addr().(*net.TCPAddr).Port
		sdp, err := h.listenPort(port, lc.Backlog)
		if err == nil {
			return newBoth(tcp, sdp), nil
		}
		tcp.Close()
		if asked != 0 || try == portTries || !errors.Is(err, syscall.EADDRINUSE) {
			err = fmt.Errorf("port %d is free for TCP, but not for SDP: %w", port, err)
			return nil, opError(opListen, nil, &Addr{h.thisHost(), port}, err)
		}
	}
}

// both is a TCP and an SDP listener on one port.
type both struct {
	tcp   net.Listener
	sdp   *Listener
	conns chan net.Conn // from the goroutines that accept
	errs  chan error    // likewise
	done  chan struct{} // closed by Close
	once  sync.Once
	wg    sync.WaitGroup // the two goroutines
}

func newBoth(tcp net.Listener, sdp *Listener) *both {
	b := &both{tcp: tcp, sdp: sdp, conns: make(chan net.Conn), errs: make(chan error), done: make(chan struct{})}
	counters := sdp.host.counters
	b.wg.Go(func() { b.accept(tcp, &counters.acceptTCP) })
	b.wg.Go(func() { b.accept(sdp, &counters.acceptSDP) })
	return b
}

// accept passes one listener's connections and errors on to Accept.
func (b *both) accept(ln net.Listener, n counter) {
	for {
		c, err := ln.Accept()
		if err != nil {
			select {
			case b.errs <- err:
				continue
			case <-b.done:
				return
			}
		}
		select {
		case b.conns <- c:
			n.Add(1)
		case <-b.done:
			c.Close()
			return
		}
	}
}

// Accept waits for a connection of either kind.
func (b *both) Accept() (net.Conn, error) {
	select {
	case <-b.done:
		return nil, &net.OpError{Op: opAccept, Net: "tcp", Addr: b.Addr(), Err: net.ErrClosed}
	default:
	}
	select {
	case c := <-b.conns:
		return c, nil
	case err := <-b.errs:
		return nil, err
	case <-b.done:
		return nil, &net.OpError{Op: opAccept, Net: "tcp", Addr: b.Addr(), Err: net.ErrClosed}
	}
}

// Close stops listening on both.
func (b *both) Close() error {
	err := error(&net.OpError{Op: opClose, Net: "tcp", Addr: b.Addr(), Err: net.ErrClosed})
	b.once.Do(func() {
		close(b.done)
		err = errors.Join(b.tcp.Close(), b.sdp.Close())
		b.wg.Wait()
	})
	return err
}

// Addr is the TCP address. Its port is that of SDP too.
func (b *both) Addr() net.Addr { return b.tcp.Addr() }
