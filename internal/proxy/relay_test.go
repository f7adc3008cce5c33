package proxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/sdp"
)

// sendHalf writes p and ends its direction only.
func sendHalf(t *testing.T, c conn, p []byte) {
	t.Helper()
	if _, err := c.Write(p); err != nil {
		t.Errorf("Write: %v", err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Errorf("CloseWrite: %v", err)
	}
}

// wantAll reads to the end of file, which must come, and compares.
func wantAll(t *testing.T, c conn, want []byte) {
	t.Helper()
	got, err := io.ReadAll(c)
	if err != nil {
		t.Errorf("read: %v", err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("read %d bytes that are not the %d sent", len(got), len(want))
	}
}

func TestHalfClosePassesThrough(t *testing.T) {
	request, answer := randomBytes(1, 300_001), randomBytes(2, 700_003)
	eachPair(t, networks, func(t *testing.T, listen, target string) {
		for name, clientFirst := range map[string]bool{"client first": true, "server first": false} {
			t.Run(name, func(t *testing.T) {
				e := newEnv(t)
				client, server, f := e.pair(listen, target)
				first, second := client, server
				want := Stats{Total: 1, ToTarget: int64(len(request)), FromTarget: int64(len(answer))}
				if !clientFirst {
					first, second = server, client
					want.ToTarget, want.FromTarget = want.FromTarget, want.ToTarget
				}
				// The second side answers only after it has seen the end of the
				// first direction.
				var wg sync.WaitGroup
				wg.Go(func() { sendHalf(t, first, request) })
				wantAll(t, second, request)
				wg.Go(func() { sendHalf(t, second, answer) })
				wantAll(t, first, answer)
				wg.Wait()
				eventually(t, "the connection ends", func() bool { return f.Stats().Open == 0 })
				if got := f.Stats(); got != want {
					t.Errorf("counters %v, want %v", got, want)
				}
			})
		}
	})
}

func TestBytesFlowBothWaysAtOnce(t *testing.T) {
	up, down := randomBytes(3, 4<<20), randomBytes(4, 4<<20)
	eachPair(t, networks, func(t *testing.T, listen, target string) {
		e := newEnv(t)
		client, server, _ := e.pair(listen, target)
		var wg sync.WaitGroup
		wg.Go(func() { sendHalf(t, client, up) })
		wg.Go(func() { sendHalf(t, server, down) })
		wg.Go(func() { wantAll(t, client, down) })
		wantAll(t, server, up)
		wg.Wait()
	})
}

func TestEndOfFileAloneDoesNotEndTheOtherDirection(t *testing.T) {
	e := newEnv(t)
	client, server, f := e.pair(networkTCP, networkSDP)
	client.CloseWrite()
	wantAll(t, server, nil)
	for range 100 { // many short messages
		server.Write([]byte("x"))
		if _, err := io.ReadFull(client, make([]byte, 1)); err != nil {
			t.Fatal(err)
		}
	}
	// The bytes are counted right after they are written, while the connection is
	// open.
	eventually(t, "the bytes are counted", func() bool { return f.Stats() == Stats{Open: 1, Total: 1, FromTarget: 100} })
}

// A Unix socket cannot reset, so it is not in this table.
func TestResetPassesThrough(t *testing.T) {
	eachPair(t, []string{networkTCP, networkSDP}, func(t *testing.T, listen, target string) {
		for name, byClient := range map[string]bool{"by client": true, "by server": false} {
			t.Run(name, func(t *testing.T) {
				e := newEnv(t)
				client, server, f := e.pair(listen, target)
				from, to := client, server
				if !byClient {
					from, to = server, client
				}
				from.Write([]byte("part of a message"))
				if _, err := io.ReadFull(to, make([]byte, 17)); err != nil {
					t.Fatal(err)
				}
				reset(from)
				if err := readToError(to); !isReset(err) {
					t.Errorf("the other side reads %v, want a reset", err)
				}
				eventually(t, "the connection ends", func() bool { return f.Stats().Open == 0 })
				if got := f.Stats(); got.Aborted != 1 {
					t.Errorf("counters %v, want 1 aborted", got)
				}
			})
		}
	})
}

func TestUnixSideIsClosedWhenTheOtherResets(t *testing.T) {
	e := newEnv(t)
	client, server, f := e.pair(networkTCP, networkUnix)
	reset(client)
	if err := readToError(server); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("read: %v, want an end", err)
	}
	eventually(t, "the connection ends", func() bool { return f.Stats().Open == 0 })
}

// The kernel reports a reset to the first caller that asks. If that is the writer
// of one direction, the reader of the other sees an end of file. The target here is
// not a socket, because the two ends of a socket have that problem too.
func TestResetUnderTrafficIsNeverACleanEnd(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 30
	}
	leak.Check(t)
	ln, err := net.Listen(networkTCP, "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for range rounds {
		client, err := net.Dial(networkTCP, ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		target := &busyTarget{}
		r := &relay{client: accept(t, ln), target: target}
		var wg sync.WaitGroup
		wg.Go(func() { io.Copy(client, &endless{}) })
		wg.Go(func() {
			io.ReadFull(client, make([]byte, 1<<20)) // traffic is under way
			reset(client)
		})
		cause := r.run()
		wg.Wait()
		if target.ended.Load() {
			t.Fatalf("a stream that was cut by %q looks like a clean end", cause)
		}
		if cause == nil { // else the result depends on the kernel and the poller
			t.Fatal("the relay ended without an error")
		}
	}
}

// busyTarget takes everything and sends without end until it is closed.
type busyTarget struct {
	net.Conn
	endless
	closed, ended atomic.Bool
}

func (b *busyTarget) Read(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, net.ErrClosed
	}
	return b.endless.Read(p)
}

func (b *busyTarget) Write(p []byte) (int, error) {
	if b.closed.Load() {
		return 0, net.ErrClosed
	}
	return len(p), nil
}

func (b *busyTarget) CloseWrite() error { b.ended.Store(true); return nil }
func (b *busyTarget) Close() error      { b.closed.Store(true); return nil }

type endless struct{}

func (endless) Read(p []byte) (int, error) { return len(p), nil }

func TestManyConnectionsLeaveNothingOpen(t *testing.T) {
	const conns = 100
	eachPair(t, networks, func(t *testing.T, listen, target string) {
		e := newEnv(t) // checks for what is left
		ln, at := e.serverOn(target)
		f := e.forward(listen, at, Map{})
		for range conns {
			c := e.dial(f.Addr())
			accept(t, ln).Close()
			if err := readToError(c); err != io.EOF {
				t.Fatalf("read: %v, want EOF", err)
			}
			c.Close()
		}
		eventually(t, "all connections end", func() bool { return f.Stats().Open == 0 })
		if got := f.Stats(); got.Total != conns || got.Failed != 0 {
			t.Errorf("counters %v, want %d in all", got, conns)
		}
	})
}

// sizes is a target that notes how much each Write to it has.
type sizes struct {
	net.Conn
	of []int
}

func (s *sizes) Write(p []byte) (int, error) { s.of = append(s.of, len(p)); return len(p), nil }

// What a client has written by one Write, the target gets by one Write, however small the
// connection's first buffer is.
func TestAWriteIsPassedOnWhole(t *testing.T) {
	name := fmt.Sprintf("mem:proxy-whole-%d", os.Getpid())
	synctest.Test(t, func(t *testing.T) { // so that only what waits takes time
		fabric, err := sdp.Open(name)
		require.NoError(t, err)
		ln, err := fabric.Listen("sdp", "localhost:0")
		require.NoError(t, err)
		for _, size := range []int{1, 2000, 30_000, 64 << 10} {
			client, err := fabric.Dial("sdp", ln.Addr().String())
			require.NoError(t, err)
			c, err := ln.Accept()
			require.NoError(t, err)
			target := &sizes{}
			r := &relay{client: c, target: target}
			r.begin()
			done := make(chan error)
			go func() { done <- r.toTarget.copy(target, c) }()
			for range 3 {
				synctest.Wait()
				_, err := client.Write(make([]byte, size))
				require.NoError(t, err)
			}
			require.NoError(t, client.Close())
			require.NoError(t, <-done)
			require.Equal(t, []int{size, size, size}, target.of)
			require.EqualValues(t, 3*size, r.toTarget.bytes.Load())
			r.watch.end()
			require.NoError(t, c.Close())
		}
		require.NoError(t, ln.Close())
		require.NoError(t, fabric.Close())
	})
}
