//go:build linux

package integration

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// playCharged uses memory as its lines say, and answers each:
//
//	listen          listens, and answers with the address
//	accept          accepts a connection
//	dial ADDRESS    dials one
//	write N         writes N bytes to the connection
//	read N          reads N bytes from it
//	eat             touches memory of its own until it is killed
//	fill ADDRESS    dials, and writes what nobody reads, until it is killed
func playCharged(p *self) error {
	c := &charged{}
	for {
		line, ok := p.readLine()
		if !ok {
			return c.close()
		}
		answer, err := c.do(words(line))
		if err != nil {
			return err
		}
		p.printf("%s", answer)
	}
}

type charged struct {
	ln   net.Listener
	conn net.Conn
}

func (c *charged) close() error {
	var errs []error
	if c.conn != nil {
		errs = append(errs, c.conn.Close())
	}
	if c.ln != nil {
		errs = append(errs, c.ln.Close())
	}
	return errors.Join(errs...)
}

func (c *charged) do(w []string) (answer string, err error) {
	n := 0
	if len(w) > 1 {
		n, _ = strconv.Atoi(w[1])
	}
	switch w[0] {
	case "listen":
		if c.ln, err = sdp.Listen("sdp", "localhost:0"); err != nil {
			return "", err
		}
		return c.ln.Addr().String(), nil
	case "accept":
		c.conn, err = c.ln.Accept()
	case "dial":
		c.conn, err = sdp.Dial("sdp", w[1])
	case "write":
		for b := make([]byte, 4096); n > 0 && err == nil; n -= len(b) {
			_, err = c.conn.Write(b)
		}
	case "read":
		for b := make([]byte, 4096); n > 0 && err == nil; n -= len(b) {
			_, err = io.ReadFull(c.conn, b)
		}
	case "eat":
		for all := [][]byte{}; ; all = append(all, bytes.Repeat([]byte{1}, 1<<20)) {
			runtime.KeepAlive(all)
		}
	case "fill":
		for err == nil {
			err = fillOne(w[1])
		}
	}
	return "done", err
}

// fillOne dials and writes until there is no more room. The connection stays.
func fillOne(address string) error {
	c, err := sdp.Dial("sdp", address)
	if err != nil {
		return err
	}
	if err := c.SetWriteDeadline(time.Now().Add(20 * time.Millisecond)); err != nil {
		return err
	}
	if _, err = c.Write(make([]byte, 2<<20)); errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	filled = append(filled, c)
	return err
}

var filled []net.Conn // so that they are not closed as garbage

// start starts a process in the group.
func (g *memoryGroup) start() *peer {
	g.t.Helper()
	p := startPeer(g.t, "charged", nil)
	// It waits for its first line, and what it has touched before is little.
	err := os.WriteFile(filepath.Join(g.dir, "cgroup.procs"), []byte(strconv.Itoa(p.cmd.Process.Pid)), 0)
	require.NoError(g.t, err)
	return p
}

// A process that is killed because its cgroup is out of memory is gone for the other side as
// after kill -9.
func TestAnOutOfMemoryKillIsAReset(t *testing.T) {
	newFabric(t)
	g := newMemoryGroup(t, 48<<20)
	victim := g.start()
	address := victim.ask("listen")
	c := dialSDP(t, address)
	require.Equal(t, "done", victim.ask("accept"))
	require.Equal(t, "done", victim.ask("write 8192"))
	_, err := fmt.Fprintln(victim.in, "eat")
	require.NoError(t, err)
	b, err := io.ReadAll(c)
	require.ErrorIs(t, err, syscall.ECONNRESET)
	require.Len(t, b, 8192)
	_, err = c.Write([]byte{1})
	require.ErrorIs(t, err, syscall.ECONNRESET)
	victim.wait()
	require.Equal(t, syscall.SIGKILL, victim.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	require.NotZero(t, g.oomKills())
}

// A process is charged for what it writes and nobody reads. It is the one that is killed.
func TestWhoFillsTheMemoryOfOthersIsKilled(t *testing.T) {
	newFabric(t)
	ln := listenSDP(t)
	g := newMemoryGroup(t, 48<<20)
	p := g.start()
	_, err := fmt.Fprintln(p.in, "fill", ln.Addr())
	require.NoError(t, err)
	conns := make(chan net.Conn, 10_000)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				close(conns)
				return
			}
			conns <- c
		}
	}()
	p.wait()
	require.Equal(t, syscall.SIGKILL, p.cmd.ProcessState.Sys().(syscall.WaitStatus).Signal())
	require.NotZero(t, g.oomKills())
	require.NoError(t, ln.Close())
	read := int64(0)
	for c := range conns {
		n, err := io.Copy(io.Discard, c) // what has arrived is there
		require.ErrorIs(t, err, syscall.ECONNRESET)
		read += n
		require.NoError(t, c.Close())
	}
	t.Logf("it had written %d MiB", read>>20)
	require.Greater(t, read, int64(10<<20))
}

// The pages of memory that processes share are charged to the cgroup whose process touches them
// first, and stay so when it has ended. docs/fabrics.md has the figures.
func TestWhoIsChargedForPages(t *testing.T) {
	newFabric(t)
	groups := [2]*memoryGroup{newMemoryGroup(t, 0), newMemoryGroup(t, 0)}
	dials, listens := groups[0].start(), groups[1].start()
	charged := func(what string) (d, l int) {
		d, l = groups[0].shared(), groups[1].shared()
		t.Logf("%-58s dials: %5d KiB, listens: %5d KiB", what, d, l)
		return d, l
	}
	address := listens.ask("listen")
	charged("before")
	_, err := fmt.Fprintln(listens.in, "accept")
	require.NoError(t, err)
	require.Equal(t, "done", dials.ask("dial "+address))
	require.Equal(t, "done", listens.readLine())
	d0, l0 := charged("connected")
	const n = 1_000_000 &^ 4095
	require.Equal(t, "done", dials.ask(fmt.Sprint("write ", n)))
	d1, l1 := charged("the dialling side has written 1 MB")
	require.InDelta(t, n>>10, d1-d0, 128)
	require.Less(t, l1-l0, 128)
	require.Equal(t, "done", listens.ask(fmt.Sprint("read ", n)))
	charged("the listening side has read it")
	require.Equal(t, "done", listens.ask(fmt.Sprint("write ", n)))
	d2, l2 := charged("the listening side has written 1 MB")
	require.InDelta(t, n>>10, l2-l1, 128)
	require.Less(t, d2-d1, 128)
	dials.kill()
	d3, _ := charged("the dialling side was killed")
	require.InDelta(t, d2, d3, 256)
	listens.kill()
	until(t, "all is given back", func() bool { return groups[0].shared() == 0 && groups[1].shared() == 0 })
}
