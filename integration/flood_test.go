//go:build linux

package integration

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// A flood is a stream that both sides know, in messages of sizes from 1 byte to 128
// KiB, small and large ones mixed. The sender ends it, and learns how much arrived.

// flood begins to send to all addresses.
func (m *member) flood(addresses []string) error {
	for _, a := range addresses {
		c, err := dialNode(m.fabric, a)
		if err != nil {
			return err
		}
		if err := c.SetDeadline(time.Time{}); err != nil {
			return err
		}
		m.floods.Go(func() {
			defer c.Close()
			m.flooded <- m.pourFlood(c)
		})
	}
	return nil
}

func (m *member) pourFlood(c *sdp.Conn) error {
	seed := rand.Uint32()
	if _, err := c.Write(binary.LittleEndian.AppendUint32(nil, seed)); err != nil {
		return err
	}
	s := newStream(int(seed % streamPeriod))
	rnd := rand.New(rand.NewPCG(uint64(seed), 4))
	sent := uint64(0)
	for !m.over.Load() {
		p := s.next(1 + rnd.IntN(1<<rnd.IntN(18)))
		if _, err := c.Write(p); err != nil {
			return err
		}
		sent += uint64(len(p))
	}
	if err := c.CloseWrite(); err != nil {
		return err
	}
	var came [8]byte
	if _, err := io.ReadFull(c, came[:]); err != nil {
		return err
	}
	if n := binary.LittleEndian.Uint64(came[:]); n != sent {
		return fmt.Errorf("%d bytes of %d came to %v", n, sent, c.RemoteAddr())
	}
	return nil
}

// ebb ends the floods and waits until all that was sent has arrived.
func (m *member) ebb() error {
	m.over.Store(true)
	m.floods.Wait()
	var errs []error
	for len(m.flooded) > 0 {
		errs = append(errs, <-m.flooded)
	}
	return errors.Join(errs...)
}

// takeFlood receives one flood.
func (m *member) takeFlood(c *sdp.Conn) {
	from, _, err := net.SplitHostPort(c.RemoteAddr().String())
	var seed [4]byte
	if err == nil {
		_, err = io.ReadFull(c, seed[:])
	}
	s := newStream(int(binary.LittleEndian.Uint32(seed[:]) % streamPeriod))
	count := uint64(0)
	for buf := make([]byte, 64<<10); err == nil; {
		var n int
		n, err = c.Read(buf)
		if _, wrong := s.Write(buf[:n]); wrong != nil {
			err = wrong
		}
		count += uint64(n)
		m.mu.Lock()
		m.counts[from] += int64(n)
		m.mu.Unlock()
	}
	if errors.Is(err, io.EOF) {
		_, err = c.Write(binary.LittleEndian.AppendUint64(nil, count))
	}
	if err != nil {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.broken == nil {
			m.broken = fmt.Errorf("from %v, after %d bytes: %w", c.RemoteAddr(), count, err)
		}
	}
}

// pairCounts is how many bytes of each ordered pair have arrived.
type pairCounts map[[2]int]int64

func (r *ring) counts() pairCounts {
	r.t.Helper()
	all := pairCounts{}
	for to := 1; to <= r.n; to++ {
		var counts map[string]int64
		r.nodes[to].askFor("counts", &counts)
		for from := 1; from <= r.n; from++ {
			if from != to {
				all[[2]int{from, to}] = counts[fmt.Sprintf("node%d", from)]
			}
		}
	}
	return all
}

// still returns the pairs that have not moved.
func (c pairCounts) still(before pairCounts) (pairs []string) {
	for p, n := range c {
		if n == before[p] {
			pairs = append(pairs, fmt.Sprintf("%d to %d, after %d bytes", p[0], p[1], n))
		}
	}
	return pairs
}

// table returns what moved, in KiB, with a line for each sender.
func (c pairCounts) table(before pairCounts, n int) string {
	var b strings.Builder
	for from := 1; from <= n; from++ {
		fmt.Fprintf(&b, "\nfrom %d:", from)
		for to := 1; to <= n; to++ {
			p := [2]int{from, to}
			fmt.Fprintf(&b, "%9d", (c[p]-before[p])>>10)
		}
	}
	return b.String()
}

// part waits until a part of a run is over: d has passed, and each pair has moved.
// A pair that does not move within testTimeout is stuck.
func (r *ring) part(before pairCounts, d time.Duration) pairCounts {
	r.t.Helper()
	begun := time.Now()
	time.Sleep(d)
	for {
		now := r.counts()
		still := now.still(before)
		if len(still) == 0 {
			r.t.Logf("%v, KiB to nodes 1 to %d:%s", time.Since(begun).Round(time.Millisecond), r.n, now.table(before, r.n))
			return now
		}
		if time.Since(begun) > d+testTimeout {
			out, _ := exec.Command(filepath.Join(programs, "ntbnet"), "topology", "--fabric", r.topology+":"+r.name).CombinedOutput()
			r.t.Fatalf("stuck for %v, %d pairs of %d: %q; KiB meanwhile:%s\n%s", time.Since(begun), len(still), len(now), still,
				now.table(before, r.n), out)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// All nodes send to all others at full speed, through the smallest bypass buffers.
// Each pair moves in each part of the run. With NTBNET_LONG that is 60 s for each
// number of nodes.
func TestAllToAllBetweenProcesses(t *testing.T) {
	parts, each := 3, 300*time.Millisecond
	if longRun() {
		parts, each = 12, 5*time.Second
	}
	for _, n := range []int{3, 5, 8} {
		if n == 8 && !longRun() {
			continue
		}
		t.Run(fmt.Sprintf("%d nodes", n), func(t *testing.T) {
			r := startMembers(t, "ring", n, "&slots=2&frame=256&buffer=65536&failover=1")
			for from := 1; from <= n; from++ {
				var to []string
				for node := 1; node <= n; node++ {
					if node != from {
						to = append(to, fmt.Sprintf("node%d:9", node))
					}
				}
				require.Equal(t, "ok", r.ask(from, "flood %s", strings.Join(to, " ")))
			}
			at := r.counts()
			for range parts {
				at = r.part(at, each)
			}
			for from := 1; from <= n; from++ {
				fmt.Fprintln(r.nodes[from].in, "ebb")
			}
			for from := 1; from <= n; from++ {
				require.Equal(t, "ok", r.nodes[from].readLine(), "node %d", from)
			}
			r.counts() // no error was reported
			r.end()
		})
	}
}
