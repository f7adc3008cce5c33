//go:build linux

package integration

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// playEcho sends back what it receives, in pieces of 64 bytes.
func playEcho(p *self) error {
	return playOne(p, func(c *sdp.Conn) error {
		var buf [64]byte
		for {
			if _, err := io.ReadFull(c, buf[:]); err != nil {
				return err
			}
			if _, err := c.Write(buf[:]); err != nil {
				return err
			}
		}
	})
}

// playOne serves one connection, until serve returns io.EOF.
func playOne(p *self, serve func(*sdp.Conn) error) error {
	ln, err := sdp.Listen("sdp", "localhost:0")
	if err != nil {
		return err
	}
	p.printf("%v", ln.Addr())
	c, err := ln.Accept()
	if err != nil {
		return err
	}
	ln.Close()
	if err := serve(c.(*sdp.Conn)); err != io.EOF {
		return fmt.Errorf("want io.EOF: %w", err)
	}
	c.Close()
	p.stay()
	return nil
}

// straceTotal matches the last line of strace -c: percent, seconds, µs per call,
// calls.
var straceTotal = regexp.MustCompile(`(?m)^\s*100\.00\s+[0-9.]+\s+[0-9]+\s+([0-9]+).* total$`)

// While both sides are busy, neither makes system calls. A few belong to the
// runtime's monitor, which sleeps for up to 10 ms at a time, and to moments when the
// system takes a processor away. So there must be one interval with fewer than one
// call for a hundred round trips. Under strace each call takes very long. So strace
// is attached anew for each interval, while traffic flows. Where other tests need
// the processors too, there is no such interval.
func TestNoSystemCallsWhileBothSidesAreBusy(t *testing.T) {
	strace := tool(t, "strace")
	if os.Getenv("NTBNET_ALONE") == "" {
		t.Skip("needs the processors for itself; NTBNET_ALONE=1 runs it")
	}
	if runtime.NumCPU() < 2 || testing.Short() {
		t.Skip("needs two processors, and is meaningless under the race detector")
	}
	newFabric(t)
	server := startPeer(t, "echo", nil)
	c := dialSDP(t, server.readLine())
	var trips atomic.Int64
	var enough atomic.Bool
	var failed error
	done := make(chan struct{})
	go func() {
		defer close(done)
		var buf [64]byte
		for failed == nil && !enough.Load() {
			if _, failed = c.Write(buf[:]); failed == nil {
				_, failed = io.ReadFull(c, buf[:])
			}
			trips.Add(1)
		}
	}()
	for end := time.Now().Add(testTimeout); ; {
		for n := trips.Load(); trips.Load() < n+100_000; {
			time.Sleep(time.Millisecond)
		}
		calls, n, report := straceFor(t, strace, server.cmd.Process.Pid, 300*time.Millisecond, &trips)
		if int64(calls) < n/100 {
			t.Logf("%d system calls for %d round trips", calls, n)
			break
		}
		require.True(t, time.Now().Before(end), "%d system calls for %d round trips:\n%s", calls, n, report)
	}
	enough.Store(true) // not Close, for which the other side might make a call
	<-done
	require.NoError(t, failed)
	require.NoError(t, c.Close())
	server.end()
}

// straceFor counts the system calls of a process for some time, and by how much n
// grows meanwhile.
func straceFor(t *testing.T, strace string, pid int, d time.Duration, n *atomic.Int64) (calls int, by int64, report string) {
	t.Helper()
	trace := exec.Command(strace, "-f", "-c", "-p", strconv.Itoa(pid))
	log := new(output)
	trace.Stderr = log
	require.NoError(t, trace.Start())
	until(t, "strace is attached", func() bool { return strings.Contains(log.String(), "attached") })
	before := n.Load()
	time.Sleep(d)
	by = n.Load() - before
	require.NoError(t, trace.Process.Signal(syscall.SIGINT))
	trace.Wait() // its status reports the interrupt
	if m := straceTotal.FindStringSubmatch(log.String()); m != nil {
		calls, _ = strconv.Atoi(m[1])
	}
	return calls, by, log.String()
}

// playSum adds the words that it receives, and sends the sum back at the end. With
// a lease, it adds them where they lie.
func playSum(p *self) error {
	lease := p.args[0] == "lease"
	return playOne(p, func(c *sdp.Conn) error {
		var sum [8]byte
		var total uint64
		buf := make([]byte, leaseSize)
		for {
			piece, err := []byte(nil), error(nil)
			if lease {
				piece, err = c.Peek()
			} else {
				var n int
				n, err = io.ReadFull(c, buf)
				piece = buf[:n]
			}
			if err != nil {
				binary.LittleEndian.PutUint64(sum[:], total)
				if _, err := c.Write(sum[:]); err != nil {
					return err
				}
				return err
			}
			if len(piece)%8 != 0 {
				return errors.New("a piece that is no multiple of 8 bytes")
			}
			total += sumWords(piece)
			if lease {
				c.Discard(len(piece))
			}
		}
	})
}

// leaseSize is the size of the messages, in bytes.
const leaseSize = 64 << 10

// sumWords and fillWords handle four words at a time, so that memory is what limits
// them.
func sumWords(b []byte) (sum uint64) {
	le := binary.LittleEndian
	for ; len(b) >= 32; b = b[32:] {
		sum += le.Uint64(b) + le.Uint64(b[8:]) + le.Uint64(b[16:]) + le.Uint64(b[24:])
	}
	for ; len(b) >= 8; b = b[8:] {
		sum += le.Uint64(b)
	}
	return sum
}

// fillWords fills b with the next words from v on.
func fillWords(b []byte, v uint64) uint64 {
	le := binary.LittleEndian
	for ; len(b) >= 32; b = b[32:] {
		le.PutUint64(b, v)
		le.PutUint64(b[8:], v+1)
		le.PutUint64(b[16:], v+2)
		le.PutUint64(b[24:], v+3)
		v += 4
	}
	for ; len(b) >= 8; b = b[8:] {
		le.PutUint64(b, v)
		v++
	}
	return v
}

// BenchmarkProduceAndSum has one process write every byte of 64 KiB messages, and
// another one add all of them: through Write and Read, or in place by leases.
//
//	go test ./integration -run '^$' -bench ProduceAndSum -count 5
func BenchmarkProduceAndSum(b *testing.B) {
	for _, way := range []string{"copy", "lease"} {
		b.Run(way, func(b *testing.B) {
			b.Setenv("SDP_FABRIC", "shm:"+fabrictest.Name(b))
			server := startPeer(b, "sum", []string{way})
			conn, err := sdp.Dial("sdp", server.readLine())
			require.NoError(b, err)
			c := conn.(*sdp.Conn)
			defer c.Close()
			buf := make([]byte, leaseSize)
			v, n := uint64(1), 0
			send := func() {
				n++
				if way == "copy" {
					v = fillWords(buf, v)
					_, err := c.Write(buf)
					require.NoError(b, err)
					return
				}
				for left := leaseSize; left > 0; {
					piece, err := c.Reserve(left)
					require.NoError(b, err)
					v = fillWords(piece, v)
					c.Commit(len(piece))
					left -= len(piece)
				}
			}
			for range 5000 { // the queue grows meanwhile
				send()
			}
			b.SetBytes(leaseSize)
			for b.Loop() {
				send()
			}
			require.NoError(b, c.CloseWrite())
			var sum [8]byte
			_, err = io.ReadFull(c, sum[:])
			require.NoError(b, err)
			last := uint64(n) * (leaseSize / 8)
			require.Equal(b, last*(last+1)/2, binary.LittleEndian.Uint64(sum[:]))
		})
	}
}
