//go:build linux

package integration

import (
	"errors"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"
)

// echo starts a server that sends back what it receives, and returns its address.
func echo(t *testing.T) (target string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				io.Copy(c, c)
			}()
		}
	}()
	return "tcp://" + ln.Addr().String()
}

// mustEcho sends s and expects it back from an echo server.
func mustEcho(t *testing.T, c net.Conn, s string) {
	t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(s))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != s {
		t.Fatalf("read %q, %v; want %q", got, err, s)
	}
}

// waitUntilRefused returns when p does not listen any more.
func waitUntilRefused(t *testing.T, p *proxy) {
	t.Helper()
	address := strings.TrimPrefix(p.listening[0], "tcp://")
	eventually(t, "it stops listening", func() bool {
		c, err := net.Dial("tcp", address)
		if err == nil {
			c.Close()
		}
		return errors.Is(err, syscall.ECONNREFUSED)
	})
}

func TestSIGTERMLetsConnectionsEnd(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(s.String(), func(t *testing.T) {
			p := startPair(t, echo(t))
			c := p.front.dial(0)
			mustEcho(t, c, "before")
			for _, proxy := range []*proxy{p.back, p.front} {
				proxy.signal(s)
			}
			waitUntilRefused(t, p.front)
			mustEcho(t, c, "after")
			closeBothWays(t, c)
			for name, proxy := range map[string]*proxy{"front": p.front, "back": p.back} {
				if s := proxy.status(); s != 0 {
					t.Errorf("the %s proxy ends with status %d", name, s)
				}
				c := parseCounters(t, proxy.waitFor(countersLine, 1))[proxy.listening[0]]
				// waitUntilRefused may have made further connections, without bytes.
				if c.toTarget != 11 || c.fromTarget != 11 {
					t.Errorf("the %s proxy's counters: %+v, want 11 bytes each way", name, c)
				}
			}
		})
	}
}

// A terminal that is closed sends SIGHUP. That must not end what others use.
func TestSIGHUPChangesNothing(t *testing.T) {
	p := startProxy(t, fabric(t), nil, "tcp://127.0.0.1:0="+echo(t))
	c := p.dial(0)
	mustEcho(t, c, "before")
	p.signal(syscall.SIGHUP)
	p.signal(syscall.SIGUSR1) // comes after SIGHUP
	p.waitFor(countersLine, 1)
	mustEcho(t, c, "after")
	other := p.dial(0)
	mustEcho(t, other, "another")
	closeBothWays(t, c)
	closeBothWays(t, other)
	if c := p.stop(); c.total != 2 || c.aborted != 0 {
		t.Errorf("counters %+v, want 2 connections that ended in order", c)
	}
}

// wantReset expects that c was cut.
func wantReset(t *testing.T, c net.Conn) {
	t.Helper()
	if n, err := io.Copy(io.Discard, c); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("read %d bytes, then %v; want a reset", n, err)
	}
}

func TestSecondSignalCutsConnections(t *testing.T) {
	p := startProxy(t, fabric(t), []string{"--drain-timeout=1h"}, "tcp://127.0.0.1:0="+echo(t))
	c := p.dial(0)
	mustEcho(t, c, "hello")
	p.signal(syscall.SIGTERM)
	waitUntilRefused(t, p)
	p.signal(syscall.SIGTERM)
	wantReset(t, c)
	if s := p.status(); s != 0 {
		t.Errorf("status %d, want 0: the end was asked for", s)
	}
}

func TestDrainTimeoutCutsConnections(t *testing.T) {
	p := startProxy(t, fabric(t), []string{"--drain-timeout=10ms"}, "tcp://127.0.0.1:0="+echo(t))
	c := p.dial(0)
	mustEcho(t, c, "hello")
	p.signal(syscall.SIGTERM)
	wantReset(t, c)
	if s := p.status(); s != 0 {
		t.Errorf("status %d, want 0: the end was asked for", s)
	}
	out := p.out.String()
	if !strings.HasSuffix(out, "msg=\"cut connections that had not ended\" connections=1\n") {
		t.Errorf("the last line does not say that a connection was cut:\n%s", out)
	}
	if !strings.Contains(out, " msg=stopping open=1 drain_timeout=10ms\n") {
		t.Errorf("no word of the start of the drain:\n%s", out)
	}
}

func TestIdleProxyEndsAtOnce(t *testing.T) {
	p := startProxy(t, fabric(t), []string{"--drain-timeout=1h"}, "sdp://localhost:0="+echo(t))
	p.signal(syscall.SIGTERM)
	if s := p.status(); s != 0 {
		t.Errorf("status %d, want 0", s)
	}
}

func TestSIGUSR1PrintsCountersOfOpenConnections(t *testing.T) {
	p := startPair(t, echo(t))
	c := p.front.dial(0)
	mustEcho(t, c, "hello")
	want := counters{open: 1, total: 1, toTarget: 5, fromTarget: 5}
	// What the client has read may be counted a moment later, so the test asks
	// again.
	var got counters
	lines := 0
	eventually(t, "the counters cover an open connection", func() bool {
		p.front.signal(syscall.SIGUSR1)
		lines++
		got = parseCounters(t, p.front.waitFor(countersLine, lines))[p.front.listening[0]]
		time.Sleep(time.Millisecond)
		return got == want
	})
	closeBothWays(t, c)
	want.open = 0
	if front, back := p.stop(); front != want || back != want {
		t.Errorf("counters at the end: front %+v, back %+v; want %+v", front, back, want)
	}
}
