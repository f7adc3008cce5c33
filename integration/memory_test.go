//go:build linux

package integration

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// windows returns where the windows of links are mapped in this process: addresses and bytes.
func windows() (all [][2]uintptr, err error) {
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return nil, err
	}
	for s := bufio.NewScanner(bytes.NewReader(maps)); s.Scan(); {
		var from, to uintptr
		if !strings.Contains(s.Text(), "memfd:ntbnet-window") {
			continue
		}
		if _, err := fmt.Sscanf(s.Text(), "%x-%x ", &from, &to); err != nil {
			return nil, err
		}
		all = append(all, [2]uintptr{from, to - from})
	}
	return all, nil
}

// playPuncher connects to an address, and punches holes into all windows while bytes go both
// ways: its arguments are the fabric and the address.
func playPuncher(p *self) error {
	f, err := sdp.Open(p.args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	c, err := f.Dial("sdp", p.args[1])
	if err != nil {
		return err
	}
	at, err := windows()
	if err != nil || len(at) != 2 {
		return fmt.Errorf("%d windows: %w", len(at), err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			if _, err := c.Write(make([]byte, 10_000)); err != nil {
				return
			}
		}
	})
	wg.Go(func() { io.Copy(io.Discard, c) })
	holes := 0
	for end := time.Now().Add(time.Second); holes == 0 || time.Now().Before(end); holes++ {
		for _, w := range at {
			if _, _, errno := unix.Syscall(unix.SYS_MADVISE, w[0], w[1], unix.MADV_REMOVE); errno != 0 {
				return errno
			}
		}
	}
	p.printf("%d", holes)
	p.stay()
	c.(*sdp.Conn).SetLinger(0)
	c.Close()
	wg.Wait()
	return nil
}

// A process that punches holes into the memory that it shares makes zeros of what is there. Its
// own connections may fail, or wait. Nothing else does.
func TestHolesAreZeros(t *testing.T) {
	dir, exe := shop(t)
	f, err := sdp.Open("shm:" + dir)
	require.NoError(t, err)
	defer f.Close()
	ln, err := f.Listen("sdp", "localhost:0")
	require.NoError(t, err)
	a := startUser(t, exe, "shm:"+dir, userA, inShop)
	good := a.meets("listen sdp localhost:0 good").Address
	puncher := startPeer(t, "puncher", []string{"shm:" + dir, ln.Addr().String()}, asUser(exe, userB), inGroups(inShop))
	c, err := ln.Accept()
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Go(func() { io.Copy(io.Discard, c) })
	wg.Go(func() {
		for {
			if _, err := c.Write(make([]byte, 10_000)); err != nil {
				return
			}
		}
	})
	punched := make(chan string)
	go func() { punched <- puncher.readLine() }()
	for done := false; !done; { // others go on meanwhile
		conn, err := f.Dial("sdp", good)
		require.NoError(t, err)
		name, err := io.ReadAll(conn)
		require.NoError(t, err)
		require.Equal(t, "good", string(name))
		require.NoError(t, conn.Close())
		select {
		case holes := <-punched:
			require.NotEqual(t, "0", holes)
			done = true
		default:
		}
	}
	puncher.kill()
	wg.Wait() // its end is noticed
	c.Close()
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, net.ErrClosed)
	a.end()
	require.NoError(t, f.Close())
}

// playStrict is playUser in a pid namespace of its own, where memory files that can be executed
// are refused.
func playStrict(p *self) error {
	if err := os.WriteFile("/proc/sys/vm/memfd_noexec", []byte("2"), 0); err != nil {
		p.printf("cannot: %v", err)
		p.stay()
		return nil
	}
	if fd, err := unix.MemfdCreate("program", unix.MFD_CLOEXEC|unix.MFD_EXEC); err == nil {
		unix.Close(fd)
		return errors.New("the setting does not count")
	}
	return playUser(p)
}

// Where vm.memfd_noexec is 2, as in some containers, processes meet as elsewhere.
func TestProcessesMeetWhereMemoryCannotBeExecuted(t *testing.T) {
	fabric := newFabric(t)
	forbidden(t, &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID})
	apart := func(c *exec.Cmd) { c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWPID }
	var all [2]*peer
	for i := range all {
		all[i] = startPeer(t, "strict", nil, apart, func(c *exec.Cmd) { c.Env = append(c.Env, "SDP_FABRIC=shm:"+fabric) })
		if line := all[i].readLine(); line != "ready" {
			fmt.Printf("WARNING: %s is skipped: no vm.memfd_noexec: %s\n", t.Name(), line)
			t.Skip("no vm.memfd_noexec: ", line)
		}
	}
	address := all[0].meets("listen sdp localhost:0 strict").Address
	require.Equal(t, "strict", all[1].meets("dial sdp %s", address).Name)
	for _, p := range all {
		p.end()
	}
}
