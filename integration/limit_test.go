//go:build linux

package integration

import (
	"errors"
	"io"
	"net"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var fullLine = regexp.MustCompile(`(?m)^time=\S+ level=WARN msg=connection end=refused map=(\S+) client=\S+ client_by=\w+ duration_ms=\S+ by=proxy cause=max-connections( left_out=\d+)?$`)

// wantRefused expects that a client's connection is cut, in Dial or later.
func wantRefused(t *testing.T, network, address string) {
	t.Helper()
	c, err := net.Dial(network, address)
	if err == nil {
		defer c.Close()
		c.SetDeadline(time.Now().Add(testTimeout))
		_, err = c.Read(make([]byte, 1))
	}
	// A Unix socket has no reset.
	if !errors.Is(err, syscall.ECONNRESET) && !(network == "unix" && err == io.EOF) {
		t.Fatalf("the client reads %v, want a reset", err)
	}
}

func TestMapRefusesMoreConnectionsThanItsLimit(t *testing.T) {
	target := echo(t)
	socket := shortDir(t) + "/s"
	p := startProxy(t, fabric(t), []string{"--max-connections", "2"}, "tcp://127.0.0.1:0="+target, "unix://"+socket+"="+target)
	for i := range p.listening {
		network, address, _ := strings.Cut(p.listening[i], "://")
		first, second := p.dial(i), p.dial(i)
		mustEcho(t, first, "one")
		mustEcho(t, second, "two")
		const more = 100
		begin := time.Now()
		for range more {
			wantRefused(t, network, address)
		}
		mustEcho(t, first, "one again") // the other map has a limit of its own
		lines := 0
		eventually(t, "a line says that the map is full", func() bool {
			lines = 0
			for _, m := range fullLine.FindAllStringSubmatch(p.out.String(), -1) {
				if m[1] == p.listening[i] {
					lines++
				}
			}
			return lines > 0
		})
		require.LessOrEqual(t, lines, 1+int(time.Since(begin)/time.Second), "one a second")
		// When one ends, another is served.
		second.Close()
		eventually(t, "another is served", func() bool {
			c, err := net.Dial(network, address)
			if err != nil {
				return false
			}
			defer c.Close()
			c.SetDeadline(time.Now().Add(testTimeout))
			_, err = c.Write([]byte("x"))
			if err == nil {
				_, err = io.ReadFull(c, make([]byte, 1))
			}
			return err == nil
		})
		first.Close()
	}
	p.signal(syscall.SIGTERM)
	require.Zero(t, p.status())
	all := parseCounters(t, p.waitFor(countersLine, len(p.listening)))
	for _, at := range p.listening {
		require.GreaterOrEqual(t, all[at].refused, int64(100), at)
		require.EqualValues(t, 3, all[at].total, at)
		require.Zero(t, all[at].failed, at)
	}
}

// relay starts a foreign program that forwards the connections that it accepts.
func relay(t *testing.T) (at string, setTarget func(address string)) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { ln.Close() })
	target := make(chan string, 1)
	go func() {
		address := <-target
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer in.Close()
				out, err := net.Dial("tcp", address)
				if err != nil {
					return
				}
				defer out.Close()
				var wg sync.WaitGroup
				for _, p := range [][2]net.Conn{{in, out}, {out, in}} {
					wg.Go(func() {
						io.Copy(p[0], struct{ io.Reader }{p[1]})
						p[0].Close() // as many relays do
					})
				}
				wg.Wait()
			}()
		}
	}()
	return "tcp://" + ln.Addr().String(), func(address string) { target <- address }
}

// A proxy cannot know where a foreign relay leads. The limit ends the loop.
func TestLoopThroughARelayOfOthersEndsAtTheLimit(t *testing.T) {
	const limit = 100
	at, setTarget := relay(t)
	p := startProxy(t, fabric(t), []string{"--max-connections", "100"}, "tcp://127.0.0.1:0="+at)
	address := strings.TrimPrefix(p.listening[0], "tcp://")
	setTarget(address)
	client := p.dial(0)
	_, err := client.Read(make([]byte, 1))
	var timeout net.Error
	if err == nil || errors.As(err, &timeout) && timeout.Timeout() {
		t.Fatalf("the client reads %v, want the end", err)
	}
	client.Close()
	c := p.stop() // waits until all connections have ended
	require.EqualValues(t, limit, c.total)
	require.EqualValues(t, 1, c.refused)
	require.Regexp(t, fullLine, p.out.String())
}
