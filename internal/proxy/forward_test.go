package proxy

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTargetThatRefusesResetsTheClientAndIsLogged(t *testing.T) {
	eachPair(t, networks, func(t *testing.T, listen, target string) {
		e := newEnv(t)
		ln, at := e.serverOn(target)
		f := e.forward(listen, at, Map{})
		ln.Close() // only now, so that the forwarder does not get its port
		const clients = 50
		for range clients {
			c, err := e.tryDial(f.Addr())
			if err == nil { // else the reset was faster
				c.SetDeadline(time.Now().Add(testTimeout))
				err = readToError(c)
				c.Close()
			}
			// A Unix socket has no reset.
			if !isReset(err) && !(listen == networkUnix && err == io.EOF) {
				t.Fatalf("the client reads %v, want a reset", err)
			}
		}
		eventually(t, "all have failed", func() bool { return f.Stats() == Stats{Total: clients, Failed: clients} })
		lines := slices.DeleteFunc(e.log.all(), func(l string) bool { return strings.Contains(l, `msg="a target is down"`) })
		if len(lines) == 0 || len(lines) >= clients {
			t.Fatalf("%d lines for %d clients, want some of them", len(lines), clients)
		}
		for _, l := range lines {
			if !strings.Contains(l, "end=failed map="+f.Addr().String()) || !strings.Contains(l, " target="+at.String()) {
				t.Errorf("the line does not name both ends: %q", l)
			}
		}
		if target == networkTCP && !strings.Contains(lines[0], "cause=\"connection refused\"") {
			t.Errorf("the line does not give the reason: %q", lines[0])
		}
	})
}

// A map's target may be a map of another proxy, which checks are no clients of.
func TestChecksAreNeitherLoggedNorClients(t *testing.T) {
	eachPair(t, []string{networkTCP, networkSDP}, func(t *testing.T, listen, target string) {
		e := newEnv(t)
		ln, at := e.serverOn(target)
		go func() {
			for {
				c, err := ln.Accept()
				if err != nil {
					return
				}
				go func() { io.Copy(c, c); c.Close() }()
			}
		}()
		second := e.forward(listen, at, Map{})
		first := e.forward(listen, second.Addr(), Map{Check: time.Millisecond})
		eventually(t, "there were checks", func() bool { return second.Stats().Checks > 2 })
		client := e.dial(first.Addr())
		_, err := client.Write([]byte("x"))
		require.NoError(t, err)
		_, err = io.ReadFull(client, make([]byte, 1))
		require.NoError(t, err)
		client.Close()
		eventually(t, "the client's connection has ended", func() bool { return first.Stats().Open == 0 })
		var got Stats
		eventually(t, "none is open for a moment", func() bool { got = second.Stats(); return got.Open == 0 })
		require.Equal(t, Stats{Total: 1, Checks: got.Checks, ToTarget: 1, FromTarget: 1}, got)
		lines := slices.DeleteFunc(e.log.all(), func(l string) bool { return !strings.Contains(l, "msg=connection") })
		require.Len(t, lines, 2, "one line of each proxy for the client")
	})
}

// silentTarget returns a TCP address that neither accepts nor refuses a connection,
// because its queue is full.
func silentTarget(e *testEnv) Endpoint {
	e.t.Helper()
	ln, at := e.serverOn(networkTCP)
	raw, err := ln.(*net.TCPListener).SyscallConn()
	if err != nil {
		e.t.Fatal(err)
	}
	if err := shortenBacklog(raw); err != nil {
		e.t.Skipf("cannot fill the queue of a listener: %v", err)
	}
	late := 0 // dials in a row; a single one may be because the machine is busy
	for range 50 {
		c, err := net.DialTimeout(networkTCP, at.Address, 100*time.Millisecond)
		if e, ok := err.(net.Error); ok && e.Timeout() {
			if late++; late == 5 {
				return at
			}
			continue
		}
		if isReset(err) {
			continue // the kernel gave up one that it had in its queue
		}
		if err != nil {
			e.t.Fatal(err)
		}
		e.t.Cleanup(func() { c.Close() })
		late = 0
	}
	e.t.Skip("this system's queue of a listener does not fill")
	return Endpoint{}
}

func TestDialTimeoutEndsWaitingForTheTarget(t *testing.T) {
	e := newEnv(t)
	f := e.forward(networkTCP, silentTarget(e), Map{DialTimeout: time.Millisecond})
	c, err := e.tryDial(f.Addr())
	if err == nil { // or it was reset before it knew that it was connected
		defer c.Close()
		c.SetDeadline(time.Now().Add(testTimeout))
		err = readToError(c)
	}
	if !isReset(err) {
		t.Errorf("the client reads %v, want a reset", err)
	}
	if got := f.Stats(); got.Failed != 1 {
		t.Errorf("counters %v, want 1 failed", got)
	}
}

func TestCloseEndsADialUnderWay(t *testing.T) {
	e := newEnv(t)
	f := e.forward(networkTCP, silentTarget(e), Map{})
	c := e.dial(f.Addr())
	eventually(t, "the connection is accepted", func() bool { return f.Stats().Open == 1 })
	f.Close()
	if err := readToError(c); !isReset(err) {
		t.Errorf("the client reads %v, want a reset", err)
	}
	if lines := e.log.all(); len(lines) != 1 || !strings.Contains(lines[0], `by=proxy cause="the proxy ends"`) {
		t.Errorf("the log is %q, want a line that says that the proxy ends", lines)
	}
}

func TestDrainLetsConnectionsEnd(t *testing.T) {
	for _, network := range networks {
		t.Run(network, func(t *testing.T) {
			e := newEnv(t)
			client, server, f := e.pair(network, networkSDP)
			f.door.shut(net.Listener.Close) // the first step of Drain
			if c, err := e.tryDial(f.Addr()); err == nil {
				c.Close()
				t.Error("it still listens")
			}
			cut := make(chan int, 1)
			go func() { cut <- f.Drain(context.Background()) }()
			sendHalf(t, client, []byte("still there"))
			wantAll(t, server, []byte("still there"))
			select {
			case <-cut:
				t.Fatal("Drain returned while a direction was open")
			default:
			}
			sendHalf(t, server, []byte("yes"))
			wantAll(t, client, []byte("yes"))
			if n := <-cut; n != 0 {
				t.Errorf("Drain cut %d connections, want none", n)
			}
			if got := f.Stats(); got.Open != 0 || got.Aborted != 0 {
				t.Errorf("counters %v, want a clean end", got)
			}
		})
	}
}

func TestDrainCutsWhatHasNotEndedInTime(t *testing.T) {
	e := newEnv(t)
	client, server, f := e.pair(networkTCP, networkSDP)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if n := f.Drain(ctx); n != 1 {
		t.Errorf("Drain cut %d connections, want 1", n)
	}
	for name, c := range map[string]conn{"client": client, "server": server} {
		if err := readToError(c); !isReset(err) {
			t.Errorf("the %s reads %v, want a reset", name, err)
		}
	}
	if got := f.Stats(); got.Open != 0 || got.Aborted != 1 {
		t.Errorf("counters %v, want 1 aborted", got)
	}
}

// failingListener returns the given errors, one after the other, and then waits for
// Close.
type failingListener struct {
	errs   chan error
	closed chan struct{}
}

func newFailingListener(errs ...error) *failingListener {
	l := &failingListener{make(chan error, len(errs)), make(chan struct{})}
	for _, err := range errs {
		l.errs <- err
	}
	return l
}

func (l *failingListener) Accept() (net.Conn, error) {
	var err error
	select {
	case err = <-l.errs:
	default:
		<-l.closed
		err = net.ErrClosed
	}
	return nil, &net.OpError{Op: "accept", Err: err}
}

func (l *failingListener) Close() error   { close(l.closed); return nil }
func (l *failingListener) Addr() net.Addr { return &net.TCPAddr{} }

// forwarderOn returns a forwarder without a target.
func forwarderOn(ln net.Listener, log *logLines) *Forwarder {
	f := newForwarder(new(Map), env{log: log.logger()})
	f.on(ln)
	return f
}

func TestAcceptErrorsThatPassAreWaitedOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newFailingListener(slices.Repeat(
			[]error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ECONNABORTED}, 3)...)
		var log logLines
		f := forwarderOn(ln, &log)
		served := make(chan error, 1)
		start := time.Now()
		go func() { served <- f.Serve() }()
		time.Sleep(time.Minute) // ends all waits, in this bubble's time
		if len(ln.errs) != 0 {
			t.Errorf("after a minute %d errors are left", len(ln.errs))
		}
		if n := len(log.all()); n == 0 || n > 12 {
			t.Errorf("%d lines, want at least one and one per error at most", n)
		}
		f.Close()
		if err := <-served; err != nil {
			t.Errorf("Serve: %v", err)
		}
		if took := time.Since(start); took != time.Minute {
			t.Errorf("Close took %v", took-time.Minute)
		}
	})
}

func TestWaitAfterAcceptErrorsGrowsToALimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ln := newFailingListener(slices.Repeat([]error{syscall.EMFILE}, 20)...)
		f := forwarderOn(ln, new(logLines))
		defer f.Close()
		go f.Serve()
		// 5+10+20+...+640 ms are eight waits, 1275 ms in all; then 1 s each.
		for _, step := range []struct {
			at   time.Duration
			left int
		}{{0, 19}, {5, 18}, {15, 17}, {1275, 11}, {2275, 10}, {3275, 9}} {
			time.Sleep(step.at*time.Millisecond - elapsed())
			synctest.Wait()
			if len(ln.errs) != step.left {
				t.Errorf("after %d ms %d errors are left, want %d", step.at, len(ln.errs), step.left)
			}
		}
	})
}

// elapsed returns the time since a synctest bubble began.
func elapsed() time.Duration {
	return time.Since(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC))
}

func TestListenerThatBreaksEndsServe(t *testing.T) {
	ln := newFailingListener(os.NewSyscallError("accept4", syscall.EBADF))
	f := forwarderOn(ln, new(logLines))
	defer f.Close()
	if err := f.Serve(); !errors.Is(err, syscall.EBADF) {
		t.Errorf("Serve: %v, want EBADF", err)
	}
}

// lateListener accepts a connection when it is closed, as may happen.
type lateListener struct {
	net.Listener
	accepting, closed chan struct{}
	late              net.Conn
}

func (l *lateListener) Accept() (net.Conn, error) {
	c := l.late
	if c == nil {
		return nil, net.ErrClosed
	}
	close(l.accepting)
	<-l.closed
	l.late = nil
	return c, nil
}

func (l *lateListener) Close() error {
	close(l.closed)
	return l.Listener.Close()
}

func TestConnectionAcceptedAsListeningEndsIsServed(t *testing.T) {
	e := newEnv(t)
	ln, at := e.serverOn(networkTCP)
	f := newForwarder(&Map{Targets: []Endpoint{e.names("a")}}, env{log: e.log.logger()})
	client := e.dial(at)
	late := &lateListener{ln, make(chan struct{}), make(chan struct{}), accept(t, ln)}
	f.on(late)
	go f.Serve()
	<-late.accepting
	drained := make(chan int)
	go func() { drained <- f.Drain(context.Background()) }()
	if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
		t.Errorf("the client reads %v, want what the target sends", err)
	}
	client.Close()
	if cut := <-drained; cut != 0 {
		t.Errorf("%d are cut", cut)
	}
}

func TestConnectionAcceptedAsConnectionsAreCutIsReset(t *testing.T) {
	e := newEnv(t)
	ln, at := e.serverOn(networkTCP)
	f := newForwarder(&Map{Targets: []Endpoint{at}}, env{log: e.log.logger()})
	f.on(ln)
	client := e.dial(at)
	accepted := accept(t, ln)
	f.Close()
	f.start(accepted)
	if err := readToError(client); !isReset(err) {
		t.Errorf("the client reads %v, want a reset", err)
	}
	if got := f.Stats(); got != (Stats{}) {
		t.Errorf("counters %v, want none", got)
	}
}

func TestLimiterLetsABurstThroughAndThenOnePerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter(limitBurst)
		passed := func(tries int) (n int, left int64) {
			for range tries {
				if skipped, ok := l.allow(); ok {
					n++
					left += skipped
				}
			}
			return n, left
		}
		for i, want := range []struct {
			n    int
			left int64
		}{{limitBurst, 0}, {1, 100 - limitBurst}, {1, 99}} {
			if n, left := passed(100); n != want.n || left != want.left {
				t.Errorf("second %d: %d lines passed that tell of %d others, want %d and %d", i, n, left, want.n, want.left)
			}
			time.Sleep(time.Second)
		}
		time.Sleep(time.Hour)
		if n, _ := passed(100); n != limitBurst {
			t.Errorf("after an hour %d lines passed at once, want %d", n, limitBurst)
		}
	})
}
