//go:build linux

package integration

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// playTCP serves flows on network "tcp".
func playTCP(p *self) error {
	ln, err := sdp.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	var seen networks
	var failed atomic.Pointer[error]
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			seen.add(c)
			wg.Go(func() {
				if err := (&flow{c: c}).accepted(); err != nil {
					failed.Store(&err)
				}
				c.Close()
			})
		}
	})
	p.printf("%s", ln.Addr())
	err = seen.report(p)
	ln.Close()
	wg.Wait()
	if f := failed.Load(); err == nil && f != nil {
		err = *f
	}
	return err
}

// since returns what was counted since before.
func since(before sdp.NetworkStats) sdp.NetworkStats {
	now := sdp.DefaultStats().Networks
	return sdp.NetworkStats{
		DialSDP:       now.DialSDP - before.DialSDP,
		DialNotLocal:  now.DialNotLocal - before.DialNotLocal,
		DialNoSDP:     now.DialNoSDP - before.DialNoSDP,
		DialSDPFailed: now.DialSDPFailed - before.DialSDPFailed,
		DialNoFabric:  now.DialNoFabric - before.DialNoFabric,
		AcceptSDP:     now.AcceptSDP - before.AcceptSDP,
		AcceptTCP:     now.AcceptTCP - before.AcceptTCP,
		ListenTCPOnly: now.ListenTCPOnly - before.ListenTCPOnly,
	}
}

// wantFlow moves data over a connection of network "tcp", which must really use the
// given network, and closes it.
func wantFlow(t *testing.T, c net.Conn, network string) {
	t.Helper()
	defer c.Close()
	require.Equal(t, network, transportOf(c))
	require.NoError(t, (&flow{c: c, seed: 3, n: 1 << 20}).dialling())
	require.NoError(t, c.Close())
}

// Network "tcp" uses SDP between two processes that can, and TCP where one of them
// cannot. It counts which, and why.
func TestNetworkTCP(t *testing.T) {
	newFabric(t)
	server := startPeer(t, "tcp", nil)
	address := server.readLine()
	_, port, err := net.SplitHostPort(address)
	require.NoError(t, err)
	before := sdp.DefaultStats().Networks

	for _, a := range []string{address, "localhost:" + port, "0.0.0.0:" + port} {
		c, err := sdp.Dial("tcp", a)
		require.NoError(t, err, a)
		wantFlow(t, c, "sdp")
	}
	require.Equal(t, sdp.NetworkStats{DialSDP: 3}, since(before))

	c, err := net.Dial("tcp", address)
	require.NoError(t, err)
	wantFlow(t, c, "tcp")
	require.Equal(t, sdp.NetworkStats{DialSDP: 3}, since(before))

	// A server of package net.
	plain, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer plain.Close()
	result := make(chan error, 1)
	go func() {
		c, err := plain.Accept()
		if err == nil {
			err = (&flow{c: c}).accepted()
			c.Close()
		}
		result <- err
	}()
	c, err = sdp.Dial("tcp", plain.Addr().String())
	require.NoError(t, err)
	require.IsType(t, (*net.TCPConn)(nil), c)
	wantFlow(t, c, "tcp")
	require.NoError(t, <-result)
	require.Equal(t, sdp.NetworkStats{DialSDP: 3, DialNoSDP: 1}, since(before))

	// The address is one for documentation, which no machine has. The port is taken
	// here. TCP handles the dial, whatever the result.
	ctx, cancel := context.WithCancel(t.Context())
	dialled := make(chan net.Conn, 1)
	go func() {
		c, _ := sdp.DialContext(ctx, "tcp", "192.0.2.1:"+port)
		dialled <- c
	}()
	until(t, "the dial is left to TCP", func() bool { return since(before).DialNotLocal > 0 })
	cancel()
	if c := <-dialled; c != nil { // something on the way answers for every address
		require.Equal(t, "tcp", transportOf(c))
		c.Close()
	}
	require.Equal(t, sdp.NetworkStats{DialSDP: 3, DialNoSDP: 1, DialNotLocal: 1}, since(before))

	var there serverReport
	until(t, "the server has counted all", func() bool {
		server.askFor("report", &there)
		return there.Stats.BytesRead >= 3<<20 && there.Stats.Networks.AcceptSDP == 3 && there.Stats.Networks.AcceptTCP == 1
	})
	require.Equal(t, map[string]int{"sdp": 3, "tcp": 1}, there.Networks)
	require.Equal(t, sdp.NetworkStats{AcceptSDP: 3, AcceptTCP: 1}, there.Stats.Networks)

	// Network "sdp" uses the same port, and never TCP.
	c, err = sdp.Dial("sdp", address)
	require.NoError(t, err)
	wantFlow(t, c, "sdp")
	_, err = sdp.Dial("sdp", plain.Addr().String())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	// The port is taken in both networks, here too.
	for _, network := range []string{"tcp", "sdp"} {
		_, err = sdp.Listen(network, address)
		require.ErrorIs(t, err, syscall.EADDRINUSE, network)
	}
	server.end()
	_, err = sdp.Dial("tcp", address)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// playNoFabric cannot have a fabric, since memfd_create fails with the number of its second
// argument. It dials what the first one names, and listens, on network "tcp".
func playNoFabric(p *self) error {
	errno, err := strconv.Atoi(p.args[1])
	if err != nil {
		return err
	}
	if err := forbidMemory(syscall.Errno(errno)); err != nil {
		return err
	}
	c, err := sdp.Dial("tcp", p.args[0])
	if err != nil {
		return err
	}
	if err := (&flow{c: c, n: 1000}).dialling(); err != nil {
		return err
	}
	c.Close()
	ln, err := sdp.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	p.printf("%s", ln.Addr())
	d, err := ln.Accept()
	if err != nil {
		return err
	}
	if err := (&flow{c: d}).accepted(); err != nil {
		return err
	}
	d.Close()
	ln.Close()
	b, err := json.Marshal(sdp.DefaultStats().Networks)
	if err != nil {
		return err
	}
	p.printf("%s %s %s", transportOf(c), transportOf(d), b)
	if _, err := sdp.Dial("sdp", p.args[0]); !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("network sdp works without a fabric, or fails as %w", err)
	}
	return nil
}

// Where a system has no fabrics, network "tcp" is TCP. That is counted, and logged once.
func TestNetworkTCPWithoutFabric(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EPERM, syscall.ENOSYS} {
		t.Run(errno.Error(), func(t *testing.T) { checkNoFabric(t, errno) })
	}
}

func checkNoFabric(t *testing.T, errno syscall.Errno) {
	newFabric(t)
	server := startPeer(t, "tcp", nil)
	client := startPeer(t, "nofabric", []string{server.readLine(), fmt.Sprint(int(errno))})
	before := sdp.DefaultStats().Networks
	c, err := sdp.Dial("tcp", client.readLine())
	require.NoError(t, err)
	wantFlow(t, c, "tcp")
	require.Equal(t, sdp.NetworkStats{DialNoSDP: 1}, since(before))
	answer := words(client.readLine())
	require.Equal(t, []string{"tcp", "tcp"}, answer[:2])
	var n sdp.NetworkStats
	require.NoError(t, json.Unmarshal([]byte(answer[2]), &n))
	require.Equal(t, sdp.NetworkStats{DialNoFabric: 1, ListenTCPOnly: 1}, n)
	client.in.Close()
	client.wait()
	require.Equal(t, 0, client.cmd.ProcessState.ExitCode(), client.stderr.String())
	require.Equal(t, 1, strings.Count(client.stderr.String(), "\n"), client.stderr.String())
	require.Contains(t, client.stderr.String(), `network "tcp" uses TCP: this system has no fabrics`)
	require.Contains(t, client.stderr.String(), errno.Error())
	var there serverReport
	server.askFor("report", &there)
	require.Equal(t, map[string]int{"tcp": 1}, there.Networks)
	server.end()
}

// Where SDP is tried and fails, TCP is used. That is counted.
func TestNetworkTCPWhereSDPFails(t *testing.T) {
	leak.Check(t)
	f, err := sdp.Open("mem:tcp-where-sdp-fails")
	require.NoError(t, err)
	defer f.Close()
	ln, err := f.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer ln.Close()
	var accepted atomic.Pointer[net.TCPConn]
	var held, taken []net.Conn // what is dropped would be closed, and make room
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			taken = append(taken, c)
			if c, ok := c.(*net.TCPConn); ok {
				accepted.Store(c)
			}
		}
	})
	_, port, err := net.SplitHostPort(ln.Addr().String())
	require.NoError(t, err)
	for err == nil { // until the window is full
		var c net.Conn
		c, err = f.Dial("sdp", "localhost:"+port)
		held = append(held, c)
	}
	require.ErrorIs(t, err, syscall.ENOBUFS)
	c, err := f.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	require.IsType(t, (*net.TCPConn)(nil), c)
	until(t, "it is accepted and counted", func() bool {
		return accepted.Load() != nil && f.Stats().Networks.AcceptTCP == 1
	})
	n := f.Stats().Networks
	require.EqualValues(t, 1, n.DialSDPFailed)
	require.Positive(t, n.AcceptSDP)
	result := make(chan error, 1)
	go func() { result <- (&flow{c: accepted.Load()}).accepted() }()
	wantFlow(t, c, "tcp")
	require.NoError(t, <-result)
	require.NoError(t, accepted.Load().Close())
	ln.Close()
	wg.Wait()
	runtime.KeepAlive(held)
	runtime.KeepAlive(taken)
}
