//go:build linux

package integration

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// playEnd is one endpoint of one connection. The process is to be killed. Its
// arguments are the address to dial or "listen", what to do, and the file of a
// tally.
func playEnd(p *self) error {
	c, err := endConn(p)
	if err != nil {
		return err
	}
	written, err := openTally(p.args[2])
	if err != nil {
		return err
	}
	p.printf("connected")
	switch p.args[1] {
	case "pour": // writes for ever, and tallies what Write has taken
		s := newStream(1)
		for i := 0; ; i++ {
			n, err := c.Write(s.next(1 << (i % 18)))
			if err != nil {
				return err
			}
			if err := written.add(n); err != nil {
				return err
			}
		}
	case "drain": // reads for ever
		_, err := io.Copy(struct{ io.Writer }{newStream(1)}, c)
		return fmt.Errorf("the stream has ended: %v", err)
	case "burst": // tallies that it has written everything just before it ends its direction
		if _, err := c.Write(newStream(1).next(burstBytes)); err != nil {
			return err
		}
		if err := written.add(burstBytes); err != nil {
			return err
		}
		if err := c.(*sdp.Conn).CloseWrite(); err != nil {
			return err
		}
	case "fin": // writes a little and ends its direction
		if _, err := c.Write(newStream(1).next(finBytes)); err != nil {
			return err
		}
		if err := c.(*sdp.Conn).CloseWrite(); err != nil {
			return err
		}
		p.printf("fin")
	case "whole": // writes a little that belongs together, when the test says so
		p.readLine()
		if _, err := c.Write(newStream(1).next(wholeBytes)); err != nil {
			return err
		}
		p.printf("written")
	case "idle":
	}
	p.stay()
	return c.Close()
}

const (
	finBytes   = 3000
	burstBytes = 900_000
	wholeBytes = 64 << 10
)

func endConn(p *self) (net.Conn, error) {
	if p.args[0] != "listen" {
		return sdp.Dial("sdp", p.args[0])
	}
	ln, err := sdp.Listen("sdp", "localhost:0")
	if err != nil {
		return nil, err
	}
	p.printf("%s", ln.Addr())
	return ln.Accept()
}

// tally is a file in which a process keeps a number that outlives it.
type tally struct {
	path  string
	file  *os.File // in the process that counts
	total uint64   // likewise
}

func newTally(t *testing.T) *tally {
	t.Helper()
	path := filepath.Join(t.TempDir(), "tally")
	require.NoError(t, os.WriteFile(path, make([]byte, 8), 0o600))
	return &tally{path: path}
}

func openTally(path string) (*tally, error) {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	return &tally{path: path, file: f}, err
}

// add is one system call. So it happens in full, or not at all.
func (f *tally) add(n int) error {
	f.total += uint64(n)
	_, err := f.file.WriteAt(binary.LittleEndian.AppendUint64(nil, f.total), 0)
	return err
}

func (f *tally) get(t *testing.T) int64 {
	t.Helper()
	b, err := os.ReadFile(f.path)
	require.NoError(t, err)
	require.Len(t, b, 8)
	return int64(binary.LittleEndian.Uint64(b))
}

// still waits until a number that something increases stays the same for a while.
func still(t *testing.T, get func() int64) { stillFor(t, 200*time.Millisecond, get) }

func stillFor(t *testing.T, d time.Duration, get func() int64) {
	t.Helper()
	last, since := get(), time.Now()
	until(t, "it stops", func() bool {
		if now := get(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > d
	})
}

// victims runs a test twice: the process that dies has dialled, or has accepted.
func victims(t *testing.T, do string, f func(t *testing.T, c *sdp.Conn, victim *peer, tally *tally)) {
	for _, dials := range []bool{true, false} {
		t.Run(map[bool]string{true: "dialled", false: "accepted"}[dials], func(t *testing.T) {
			newFabric(t)
			tally := newTally(t)
			var c *sdp.Conn
			var victim *peer
			if dials {
				ln := listenSDP(t)
				victim = startPeer(t, "end", []string{ln.Addr().String(), do, tally.path})
				c = acceptSDP(t, ln)
			} else {
				victim = startPeer(t, "end", []string{"listen", do, tally.path})
				address := victim.readLine()
				c = dialSDP(t, address)
				defer func() { // the process is dead
					_, err := sdp.Dial("sdp", address)
					require.ErrorIs(t, err, syscall.ECONNREFUSED)
				}()
			}
			require.Equal(t, "connected", victim.readLine())
			f(t, c, victim, tally)
			require.True(t, victim.killed(), "%v", victim.cmd.ProcessState)
			victim.quiet()
			require.NoError(t, c.Close())
			wantServed(t)
		})
	}
}

// killed waits for the end of the process and reports whether SIGKILL caused it.
func (p *peer) killed() bool {
	p.t.Helper()
	p.wait()
	status := p.cmd.ProcessState.Sys().(syscall.WaitStatus)
	return status.Signaled() && status.Signal() == syscall.SIGKILL
}

// wantNotice waits for an operation to return because of the death of the peer. The
// aim is a second. The limit is generous, for slow machines.
func wantNotice(t *testing.T, death time.Time, result <-chan error) error {
	t.Helper()
	select {
	case err := <-result:
		t.Logf("noticed after %v", time.Since(death).Round(10*time.Microsecond))
		return err
	case <-time.After(60 * time.Second):
		t.Fatal("the death was not noticed within 60 s")
	}
	return nil
}

// readOn reads and checks the stream until an error occurs.
func readOn(c net.Conn, s *stream, n *int64) error {
	buf := make([]byte, 64<<10)
	for {
		k, err := c.Read(buf)
		if _, err := s.Write(buf[:k]); err != nil {
			return fmt.Errorf("after %d bytes: %w", *n, err)
		}
		*n += int64(k)
		if err != nil {
			return err
		}
	}
}

const beforeDeath = 8 << 20

// A writer dies in the middle of a transfer. Everything that its Write has taken
// arrives, whether the reader keeps up or not.
func TestKilledWriter(t *testing.T) {
	for _, reads := range []string{"reading", "stalled"} {
		t.Run(reads, func(t *testing.T) {
			victims(t, "pour", func(t *testing.T, c *sdp.Conn, victim *peer, tally *tally) {
				s := newStream(1)
				require.NoError(t, s.readExactly(c, beforeDeath))
				if reads == "stalled" {
					until(t, "the writer goes on", func() bool { return tally.get(t) > beforeDeath })
					still(t, func() int64 { return tally.get(t) }) // mostly the window is full by now, and the writer waits
				}
				n := int64(beforeDeath)
				result := make(chan error, 1)
				read := func() { go func() { result <- readOn(c, s, &n) }() }
				if reads == "reading" {
					read()
				}
				death := time.Now()
				require.NoError(t, victim.cmd.Process.Kill())
				if reads == "stalled" {
					require.True(t, victim.killed())
					death = time.Now()
					read()
				}
				require.ErrorIs(t, wantNotice(t, death, result), syscall.ECONNRESET)
				require.True(t, victim.killed())
				require.GreaterOrEqual(t, n, tally.get(t), "bytes that were written are lost")
				_, err := c.Write([]byte{1})
				require.ErrorIs(t, err, syscall.ECONNRESET)
				_, err = c.Read([]byte{1})
				require.ErrorIs(t, err, syscall.ECONNRESET)
			})
		})
	}
}

// A Write waits for room in the window of a reader. When the reader dies, the Write
// returns.
func TestKilledReader(t *testing.T) {
	for _, do := range []string{"idle", "drain"} {
		t.Run(do, func(t *testing.T) {
			victims(t, do, func(t *testing.T, c *sdp.Conn, victim *peer, _ *tally) {
				result := make(chan error, 1)
				go func() {
					_, err := io.Copy(struct{ io.Writer }{c}, newStream(1))
					result <- err
				}()
				total := func() int64 { s := c.Stats(); return int64(s.BytesWritten()) }
				if do == "idle" {
					until(t, "Write waits", func() bool { return c.Stats().WriteParks > 0 })
					still(t, total)
				} else {
					until(t, "the transfer is under way", func() bool { return total() > beforeDeath })
				}
				death := time.Now()
				require.NoError(t, victim.cmd.Process.Kill())
				require.ErrorIs(t, wantNotice(t, death, result), syscall.ECONNRESET)
				_, err := c.Read([]byte{1})
				require.ErrorIs(t, err, syscall.ECONNRESET)
			})
		})
	}
}

// A Read of an idle connection returns when the other side dies.
func TestKilledIdlePeer(t *testing.T) {
	victims(t, "idle", func(t *testing.T, c *sdp.Conn, victim *peer, _ *tally) {
		result := make(chan error, 1)
		go func() {
			_, err := c.Read([]byte{1})
			result <- err
		}()
		until(t, "Read waits", func() bool { return c.Stats().ReadParks > 0 })
		death := time.Now()
		require.NoError(t, victim.cmd.Process.Kill())
		require.ErrorIs(t, wantNotice(t, death, result), syscall.ECONNRESET)
		_, err := c.Write([]byte{1})
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
}

// The end of the stream counts if it was published before the death.
func TestKilledAfterFIN(t *testing.T) {
	for _, order := range []string{"read after the death", "read before"} {
		t.Run(order, func(t *testing.T) {
			victims(t, "fin", func(t *testing.T, c *sdp.Conn, victim *peer, _ *tally) {
				require.Equal(t, "fin", victim.readLine())
				s := newStream(1)
				if order == "read before" {
					require.NoError(t, s.readExactly(c, finBytes))
				}
				require.NoError(t, victim.cmd.Process.Kill())
				require.True(t, victim.killed())
				if order != "read before" {
					require.NoError(t, s.readExactly(c, finBytes))
				}
				for range 2 {
					n, err := c.Read([]byte{1})
					require.Zero(t, n)
					require.Equal(t, io.EOF, err)
				}
				result := make(chan error, 1)
				go func() {
					for { // until the death is noticed
						if _, err := c.Write([]byte{1}); err != nil {
							result <- err
							return
						}
					}
				}()
				require.ErrorIs(t, wantNotice(t, time.Now(), result), syscall.ECONNRESET)
			})
		})
	}
}

// The writer may die at any moment. The end of the stream means that everything was
// read. A reset means that something may be missing, but nothing that Write has
// taken.
func TestKilledAtAnyMoment(t *testing.T) {
	newFabric(t)
	ln := listenSDP(t)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	ends := map[error]int{}
	times := long(40, 10)
	for range times {
		tally := newTally(t)
		victim := startPeer(t, "end", []string{ln.Addr().String(), "burst", tally.path})
		c := acceptSDP(t, ln)
		s, n := newStream(1), random.Int64N(burstBytes+1)
		require.NoError(t, s.readExactly(c, n))
		require.NoError(t, victim.cmd.Process.Kill())
		switch err := readOn(c, s, &n); {
		case err == io.EOF:
			require.EqualValues(t, burstBytes, n, "the stream has ended too early")
			ends[io.EOF]++
		default:
			require.ErrorIs(t, err, syscall.ECONNRESET)
			ends[syscall.ECONNRESET]++
		}
		require.True(t, victim.killed())
		require.GreaterOrEqual(t, n, tally.get(t), "bytes that were written are lost")
		victim.quiet()
		require.NoError(t, c.Close())
	}
	t.Logf("%v", ends)
	require.EqualValues(t, times, ends[io.EOF]+ends[syscall.ECONNRESET])
}

// Dials that are under way when the listening process dies fail, as refused or
// reset. They do no harm to the process that dials.
func TestKilledWhileDialled(t *testing.T) {
	newFabric(t)
	const dialling = 4
	for range long(30, 10) {
		server, address := startServer(t)
		var dialled atomic.Int64
		results := make(chan error, dialling)
		for range dialling {
			go func() {
				for {
					c, err := sdp.Dial("sdp", address)
					if err != nil {
						results <- err
						return
					}
					dialled.Add(1)
					c.Close()
				}
			}()
		}
		until(t, "dials are under way", func() bool { return dialled.Load() > 100 })
		require.NoError(t, server.cmd.Process.Kill())
		death := time.Now()
		for range dialling {
			if err := wantNotice(t, death, results); !errors.Is(err, syscall.ECONNREFUSED) {
				require.ErrorIs(t, err, syscall.ECONNRESET)
			}
		}
		require.True(t, server.killed())
	}
	wantServed(t)
}

// playOpenOnly joins the fabric and leaves it.
func playOpenOnly(p *self) error {
	f, err := sdp.Open("")
	if err != nil {
		return err
	}
	p.printf("open")
	p.stay()
	return f.Close()
}

// When all processes are dead, only the directory with its empty file and their sockets is
// left. The next process uses it without a message, and removes the sockets.
func TestBothKilled(t *testing.T) {
	name := newFabric(t)
	dir := filepath.Join(fabricBase(os.Geteuid()), name)
	claims := ""
	for range 3 {
		tally := newTally(t)
		server := startPeer(t, "end", []string{"listen", "pour", tally.path})
		client := startPeer(t, "end", []string{server.readLine(), "drain", newTally(t).path})
		bystander := startPeer(t, "open-only", nil)
		require.Equal(t, "open", bystander.readLine())
		until(t, "the transfer is under way", func() bool { return tally.get(t) > beforeDeath })
		all := []*peer{server, client, bystander}
		for _, p := range all {
			require.NoError(t, p.cmd.Process.Signal(syscall.SIGSTOP)) // so that neither sees the other's death
		}
		for _, p := range all {
			require.NoError(t, p.cmd.Process.Kill())
		}
		for _, p := range all {
			require.True(t, p.killed(), "%v", p.cmd.ProcessState)
			p.quiet()
		}
		require.False(t, claimed(t, dir), "a dead process has a claim")
		if claims != "" {
			require.Equal(t, claims, onlyClaims(t, dir), "the directory was not used again")
		}
		claims = onlyClaims(t, dir)
	}
	dead := sockets(t, dir)
	require.Len(t, dead, 3)
	wantServed(t)
	require.Equal(t, claims, onlyClaims(t, dir))
	for _, socket := range dead {
		require.NoFileExists(t, socket)
	}
}
