//go:build linux

package integration

import (
	"bufio"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func init() { roles["member"] = playMember }

// longVariable switches on the long forms of tests, which take minutes rather than
// seconds. CI sets it in a step of its own.
const longVariable = "NTBNET_LONG"

func longRun() bool { return os.Getenv(longVariable) != "" }

// member is a node of a ring that sends much, counts what it receives, and can cut
// its own cables. It takes streams at port 8 and floods at port 9. The test says:
//
//	send ADDRESS N SEED     send N bytes to port 8; the answer is a receipt, in JSON
//	reach ADDRESS           open a connection, in two seconds at the most
//	received                how many bytes have come to port 8 so far
//	cut PID                 cut the cables to a process; the answer is how many
//	flood ADDRESS...        send to all these ports 9, at full speed
//	counts                  bytes that have come to port 9, by sender, in JSON
//	ebb                     end the floods; the answer comes when all have arrived
//	watch                   watch the nodes
//	seen                    each node as the events so far say: "2+" is up with both links, "2left" lacks that one, "2-" is down
type member struct {
	*self
	fabric   *sdp.Fabric
	received atomic.Int64
	sinks    sync.WaitGroup // connections that were accepted

	mu     sync.Mutex
	counts map[string]int64 // by the sender's host; guarded by mu
	broken error            // the first failure of a flood; guarded by mu

	seen [5]sdp.Node // by number, as events say; guarded by mu

	over    atomic.Bool
	floods  sync.WaitGroup
	flooded chan error
}

func playMember(p *self) error {
	f, err := sdp.Open(p.args[0])
	if err != nil {
		return err
	}
	defer f.Close()
	m := &member{self: p, fabric: f, counts: map[string]int64{}, flooded: make(chan error, 64)}
	for port, serve := range map[int]func(*sdp.Conn){8: m.takeStream, 9: m.takeFlood} {
		ln, err := f.Listen("sdp", fmt.Sprintf(":%d", port))
		if err != nil {
			return err
		}
		done := make(chan struct{})
		go func() { defer close(done); m.serve(ln, serve) }()
		defer func() { ln.Close(); <-done }()
		if port == 8 {
			defer m.sinks.Wait()
		}
	}
	p.printf("ready")
	for {
		line, ok := p.readLine()
		if !ok {
			return nil
		}
		answer, err := m.do(words(line))
		if err != nil {
			answer = err.Error()
		}
		p.printf("%s", answer)
	}
}

func (m *member) serve(ln net.Listener, serve func(*sdp.Conn)) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		m.sinks.Go(func() {
			defer c.Close()
			serve(c.(*sdp.Conn))
		})
	}
}

func (m *member) do(w []string) (string, error) {
	switch w[0] {
	case "send":
		n, err := strconv.ParseInt(w[2], 10, 64)
		if err != nil {
			return "", err
		}
		seed, err := strconv.ParseUint(w[3], 10, 64)
		if err != nil {
			return "", err
		}
		go func() { // the test may send further lines
			answer, err := m.send(w[1], n, seed)
			if err != nil {
				answer = err.Error()
			}
			m.printf("sent %s", answer)
		}()
		return "sending", nil
	case "reach":
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		c, err := m.fabric.DialContext(ctx, "sdp", w[1])
		if err != nil {
			return "", err
		}
		return "ok", c.Close()
	case "received":
		return fmt.Sprint(m.received.Load()), nil
	case "cut":
		n, err := cutCables(w[1])
		return fmt.Sprint(n), err
	case "flood":
		return "ok", m.flood(w[1:])
	case "counts":
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.broken != nil {
			return "", m.broken
		}
		b, err := json.Marshal(m.counts)
		return string(b), err
	case "ebb":
		return "ok", m.ebb()
	case "watch":
		go m.watch() // until the Fabric is closed
		return "ok", nil
	case "seen":
		return m.nodes(), nil
	}
	return "", fmt.Errorf("what is %q", w[0])
}

func (m *member) watch() {
	for e := range m.fabric.Watch(context.Background()) {
		m.mu.Lock()
		m.seen[e.Node.Number] = e.Node
		m.mu.Unlock()
	}
}

// nodes returns what watch has seen.
func (m *member) nodes() string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var all []string
	for _, n := range m.seen[1:] {
		state := ""
		switch {
		case !n.Up:
			state = "-"
		case n.Left == sdp.LinkUp && n.Right == sdp.LinkUp:
			state = "+"
		}
		if n.Up && n.Left != sdp.LinkUp {
			state += "left"
		}
		if n.Up && n.Right != sdp.LinkUp {
			state += "right"
		}
		all = append(all, fmt.Sprintf("%d%s", n.Number, state))
	}
	return strings.Join(all, " ")
}

// cutCables shuts down the sockets that are cables to a process, as if somebody
// pulled a plug. Both sides find their link down.
func cutCables(pid string) (n int, err error) {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return 0, err
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil {
			return n, err
		}
		cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
		if err != nil || fmt.Sprint(cred.Pid) != pid {
			continue // not a socket, or another process's
		}
		if unix.Shutdown(fd, unix.SHUT_RDWR) == nil {
			n++
		}
	}
	return n, nil
}

// receipt is what the receiver of a stream returns to its sender.
type receipt struct {
	Bytes  int64
	Sum    string
	Pauses []pause
	Begun  time.Time
}

// pause is a time without a byte.
type pause struct {
	From time.Time
	For  time.Duration
}

// leastPause is the shortest pause that is recorded. mostPauses is how many of the
// longest are reported, since a line of a process has a limit.
const (
	leastPause = time.Millisecond
	mostPauses = 200
)

func (m *member) takeStream(c *sdp.Conn) {
	r := receipt{Begun: time.Now()}
	sum := sha256.New()
	last := r.Begun
	buf := make([]byte, 64<<10)
	for {
		n, err := c.Read(buf)
		now := time.Now()
		if d := now.Sub(last); d > leastPause {
			r.Pauses = append(r.Pauses, pause{last, d})
		}
		last = now
		sum.Write(buf[:n])
		r.Bytes += int64(n)
		m.received.Add(int64(n))
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return // the sender gets no receipt
		}
	}
	slices.SortFunc(r.Pauses, func(a, b pause) int { return cmp.Compare(b.For, a.For) })
	r.Pauses = r.Pauses[:min(len(r.Pauses), mostPauses)]
	r.Sum = fmt.Sprintf("%x", sum.Sum(nil))
	_ = json.NewEncoder(c).Encode(r) // likewise
}

// send sends a stream and returns its receipt.
func (m *member) send(address string, n int64, seed uint64) (string, error) {
	c, err := dialNode(m.fabric, address)
	if err != nil {
		return "", err
	}
	defer c.Close()
	if err := c.SetDeadline(time.Now().Add(10 * testTimeout)); err != nil {
		return "", err
	}
	sum := sha256.New()
	if err := pour(c, sum, n, seed); err != nil {
		return "", fmt.Errorf("write: %w", err)
	}
	if err := c.CloseWrite(); err != nil {
		return "", err
	}
	answer, err := bufio.NewReader(c).ReadBytes('\n')
	if err != nil {
		return "", fmt.Errorf("read the receipt: %w", err)
	}
	var r receipt
	if err := json.Unmarshal(answer, &r); err != nil {
		return "", err
	}
	if want := fmt.Sprintf("%x", sum.Sum(nil)); r.Bytes != n || r.Sum != want {
		return "", fmt.Errorf("%d bytes with SHA-256 %s came, want %d with %s", r.Bytes, r.Sum, n, want)
	}
	return string(answer[:len(answer)-1]), nil
}

// pour writes n bytes in pieces whose sizes depend on a seed. Each piece begins
// with its position, so that no two are alike.
func pour(w io.Writer, sum hash.Hash, n int64, seed uint64) error {
	rnd := rand.New(rand.NewPCG(seed, 2))
	s := newStream(int(seed % streamPeriod))
	buf := make([]byte, 256<<10)
	for at := int64(0); at < n; {
		p := buf[:min(n-at, 1+rnd.Int64N(int64(len(buf))))]
		copy(p, s.next(len(p)))
		if len(p) >= 8 {
			binary.LittleEndian.PutUint64(p, uint64(at))
		}
		sum.Write(p)
		if _, err := w.Write(p); err != nil {
			return err
		}
		at += int64(len(p))
	}
	return nil
}

// startMembers starts all nodes of a ring as members.
func startMembers(t *testing.T, topology string, n int, options string) *ring {
	t.Helper()
	r := newRing(t, topology, n)
	r.role, r.options = "member", options
	for node := 1; node <= n; node++ {
		r.begin(node)
	}
	for node := 1; node <= n; node++ {
		require.Equal(t, "ready", r.nodes[node].readLine())
	}
	return r
}
