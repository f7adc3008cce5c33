//go:build linux

package integration

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"
)

// joined returns a client and a server on plain TCP, with a pair of proxies between
// them.
func joined(t *testing.T) (client, server *net.TCPConn, p *pair) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	p = startPair(t, "tcp://"+ln.Addr().String())
	client = p.front.dial(0).(*net.TCPConn)
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(testTimeout))
	return client, c.(*net.TCPConn), p
}

func TestHalfClosePassesThroughBothProxies(t *testing.T) {
	const size = 3<<20 + 1
	for name, clientFirst := range map[string]bool{"client first": true, "server first": false} {
		t.Run(name, func(t *testing.T) {
			client, server, p := joined(t)
			first, second := client, server
			if !clientFirst {
				first, second = server, client
			}
			// The second side answers only after it has seen the end of the first
			// direction.
			oneWay(t, first, second, size)
			oneWay(t, second, first, 2*size)
			first.Close()
			second.Close()
			want := counters{total: 1, toTarget: size, fromTarget: 2 * size}
			if !clientFirst {
				want.toTarget, want.fromTarget = want.fromTarget, want.toTarget
			}
			if front, back := p.stop(); front != want || back != want {
				t.Errorf("counters: front %+v, back %+v; want %+v", front, back, want)
			}
		})
	}
}

// oneWay sends random bytes and the end of the stream.
func oneWay(t *testing.T, from, to *net.TCPConn, size int) {
	t.Helper()
	sent := make([]byte, size)
	rand.NewChaCha8([32]byte{3}).Read(sent)
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() {
		if _, err := from.Write(sent); err != nil {
			t.Errorf("write: %v", err)
		}
		if err := from.CloseWrite(); err != nil {
			t.Errorf("CloseWrite: %v", err)
		}
	})
	got, err := io.ReadAll(to)
	if err != nil || !bytes.Equal(got, sent) {
		t.Errorf("read %d bytes, %v; want the %d sent and the end", len(got), err, size)
	}
}

func TestResetPassesThroughBothProxies(t *testing.T) {
	for name, byClient := range map[string]bool{"by client": true, "by server": false} {
		t.Run(name, func(t *testing.T) {
			client, server, p := joined(t)
			from, to := client, server
			if !byClient {
				from, to = server, client
			}
			if _, err := from.Write([]byte("part of a message")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(to, make([]byte, 17)); err != nil {
				t.Fatal(err)
			}
			from.SetLinger(0)
			from.Close()
			if n, err := io.Copy(io.Discard, to); !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("the other side reads %d bytes, then %v; want a reset", n, err)
			}
			if front, back := p.stop(); front.aborted != 1 || back.aborted != 1 {
				t.Errorf("counters: front %+v, back %+v; want each to have aborted one", front, back)
			}
		})
	}
}
