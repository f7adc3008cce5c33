//go:build linux

package integration

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// A writer is stopped within a Write, and dies there. The reader waits for the rest for a while,
// and gets all that has come.
func TestAWriterIsStoppedWithinAWrite(t *testing.T) {
	victims(t, "whole", func(t *testing.T, c *sdp.Conn, victim *peer, _ *tally) {
		s, n := newStream(1), int64(0)
		part := func() {
			t.Helper()
			_, err := c.Peek() // so the Write is under way
			require.NoError(t, err)
			c.Discard(0)
			require.NoError(t, victim.cmd.Process.Signal(syscall.SIGSTOP))
			until(t, "the writer is stopped", victim.stopped)
			buf := make([]byte, wholeBytes)
			k, err := c.Read(buf)
			require.NoError(t, err)
			_, err = s.Write(buf[:k])
			require.NoError(t, err)
			n += int64(k)
		}
		require.NoError(t, c.SetReadBuffer(4<<10)) // which has no room for all of it
		fmt.Fprintln(victim.in, "write")
		part()
		require.NoError(t, victim.cmd.Process.Signal(syscall.SIGCONT))
		part()
		require.NoError(t, victim.cmd.Process.Kill())
		require.True(t, victim.killed())
		require.ErrorIs(t, readOn(c, s, &n), syscall.ECONNRESET)
		require.LessOrEqual(t, n, int64(4*4<<10))
	})
}

// wholeSizes are the sizes of the Writes of BenchmarkWholeWrites.
var wholeSizes = []int{1000, 2000, 4096, 8192, 16 << 10, 32 << 10, 64 << 10}

// playWhole listens by package net and by SDP, for each of wholeSizes. For each so many bytes of a
// connection it sends back in how many Reads they came.
func playWhole(p *self) error {
	var serving sync.WaitGroup
	var listeners []net.Listener
	for _, listen := range []func() (net.Listener, error){
		func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
		func() (net.Listener, error) { return sdp.Listen("sdp", ":0") },
	} {
		var ports []string
		for _, size := range wholeSizes {
			ln, err := listen()
			if err != nil {
				return err
			}
			_, port, _ := net.SplitHostPort(ln.Addr().String())
			listeners, ports = append(listeners, ln), append(ports, port)
			serving.Go(func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					serving.Go(func() { countReads(c, size) })
				}
			})
		}
		p.printf("%s", strings.Join(ports, " "))
	}
	p.stay()
	for _, ln := range listeners {
		ln.Close()
	}
	serving.Wait()
	return nil
}

// countReads serves a connection until its end.
func countReads(c net.Conn, size int) {
	defer c.Close()
	buf := make([]byte, 64<<10)
	for {
		reads := byte(0)
		for got := 0; got < size; reads++ {
			n, err := c.Read(buf)
			if err != nil {
				return // the test reports errors
			}
			got += n
		}
		if _, err := c.Write([]byte{reads}); err != nil {
			return
		}
	}
}

// How many of the Writes come in several Reads, into a reader that waits: on new connections and
// on one that is in use, by TCP, by SDP, over two hops and through two proxies. For 200 of each, on an
// idle machine and beside four busy processes:
//
//	go test ./integration -run '^$' -bench WholeWrites -benchtime 200x
//	for i in 1 2 3 4; do (while :; do :; done)& done; go test …; kill $(jobs -p)
func BenchmarkWholeWrites(b *testing.B) {
	newFabric(b)
	server := startPeer(b, "whole", nil)
	byTCP, bySDP := strings.Fields(server.readLine()), strings.Fields(server.readLine())

	line := func(node int) string { return fmt.Sprintf("line:%s?node=%d&nodes=3", fabrictest.Name(b), node) }
	between := startPeer(b, "node", []string{line(2)})
	far := startPeer(b, "whole", nil, func(c *exec.Cmd) { c.Env = append(c.Env, "SDP_FABRIC="+line(3)) })
	near, err := sdp.Open(line(1))
	require.NoError(b, err)
	defer near.Close()
	between.readLine()
	far.readLine()
	overHops := strings.Fields(far.readLine())

	var maps []string
	for _, port := range byTCP {
		maps = append(maps, "sdp://localhost:0=tcp://127.0.0.1:"+port)
	}
	name := fabric(b)
	back := startProxy(b, name, nil, maps...)
	for i, at := range back.listening {
		_, port := split(b, at, "sdp://")
		maps[i] = "tcp://127.0.0.1:0=sdp://localhost:" + port
	}
	front := startProxy(b, name, nil, maps...)

	ways := []struct {
		name string
		dial func(i int) (net.Conn, error)
	}{
		{"TCP", func(i int) (net.Conn, error) { return net.Dial("tcp", "127.0.0.1:"+byTCP[i]) }},
		{"SDP", func(i int) (net.Conn, error) { return sdp.Dial("sdp", "localhost:"+bySDP[i]) }},
		{"hops", func(i int) (net.Conn, error) { return near.Dial("sdp", "node3:"+overHops[i]) }},
		{"proxies", func(i int) (net.Conn, error) {
			return net.Dial("tcp", strings.TrimPrefix(front.listening[i], "tcp://"))
		}},
	}
	for i, size := range wholeSizes {
		for _, age := range []string{"new", "warm"} {
			for _, w := range ways {
				b.Run(fmt.Sprintf("%d/%s/%s", size, age, w.name), func(b *testing.B) {
					writes := wholeWrites{b: b, p: make([]byte, size), dial: func() (net.Conn, error) { return w.dial(i) }}
					writes.run(age == "new")
				})
			}
		}
	}
}

// wholeWrites makes Writes to a server of playWhole.
type wholeWrites struct {
	b    *testing.B
	p    []byte // what is written
	dial func() (net.Conn, error)
	c    net.Conn
}

func (w *wholeWrites) run(fresh bool) {
	w.connect()
	defer func() { w.c.Close() }()
	for range 10 {
		w.write()
	}
	split := 0
	for w.b.Loop() {
		if fresh {
			w.c.Close()
			w.connect()
		}
		if w.write() > 1 {
			split++
		}
	}
	w.b.ReportMetric(float64(split), "split")
}

// connect makes a connection whose reader waits.
func (w *wholeWrites) connect() {
	c, err := w.dial()
	require.NoError(w.b, err)
	w.c = c
	time.Sleep(5 * time.Millisecond)
}

// write makes one Write, and returns in how many Reads it came.
func (w *wholeWrites) write() int {
	_, err := w.c.Write(w.p)
	require.NoError(w.b, err)
	var reads [1]byte
	_, err = w.c.Read(reads[:])
	require.NoError(w.b, err)
	return int(reads[0])
}
