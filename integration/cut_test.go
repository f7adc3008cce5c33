//go:build linux

package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cut cuts the cable between two nodes, at the end of the first. The nodes make the
// link again at once. If it is still down from an earlier cut, cut first waits for
// it.
func (r *ring) cut(a, b int) time.Time {
	r.t.Helper()
	for end := time.Now().Add(testTimeout); ; time.Sleep(time.Millisecond) {
		answer := r.askSender(a, "cut %d", r.nodes[b].cmd.Process.Pid)
		n, err := strconv.Atoi(answer)
		require.NoError(r.t, err, answer)
		if n > 0 {
			return time.Now()
		}
		require.True(r.t, time.Now().Before(end), "there is no cable from node %d to node %d", a, b)
	}
}

const sentPrefix = "sent "

// askSender is ask for a node that sends a stream. Such a node may write the
// outcome of the stream in between.
func (r *ring) askSender(node int, format string, args ...any) string {
	r.t.Helper()
	for answer := r.ask(node, format, args...); ; answer = r.nodes[node].readLine() {
		sent, ok := strings.CutPrefix(answer, sentPrefix)
		if !ok {
			return answer
		}
		r.sent[node] = append(r.sent[node], sent)
	}
}

// outcome returns the outcome of a stream that a node sends.
func (r *ring) outcome(node int) string {
	r.t.Helper()
	if len(r.sent[node]) > 0 {
		answer := r.sent[node][0]
		r.sent[node] = r.sent[node][1:]
		return answer
	}
	answer, ok := strings.CutPrefix(r.nodes[node].readLine(), sentPrefix)
	require.True(r.t, ok, answer)
	return answer
}

// receipt returns the receipt of a stream that a node sends. The stream must
// arrive.
func (r *ring) receipt(node int) (got receipt) {
	r.t.Helper()
	answer := r.outcome(node)
	require.NoError(r.t, json.Unmarshal([]byte(answer), &got), "%s", answer)
	return got
}

// cutEvent describes a cut, for the report.
type cutEvent struct {
	at   time.Time
	what string
}

// longestPause reports, for each cut, the longest time without a byte that began
// after it, or in which it happened. It returns the longest of all.
func longestPause(t *testing.T, got receipt, cuts []cutEvent) (longest time.Duration) {
	t.Helper()
	var report strings.Builder
	for i, c := range cuts {
		var most time.Duration
		for _, p := range got.Pauses {
			if p.From.Add(p.For).After(c.at) && (i+1 == len(cuts) || p.From.Before(cuts[i+1].at)) {
				most = max(most, p.For)
			}
		}
		longest = max(longest, most)
		fmt.Fprintf(&report, "\n%8.3f s: %s: %v", c.at.Sub(got.Begun).Seconds(), c.what, most.Round(time.Millisecond))
	}
	t.Logf("longest pauses of at least %v, by cut:%s", leastPause, report.String())
	return longest
}

// cutSomehow cuts links by a random choice: one link, the same one again as soon as
// it is up, both links of a node, or one link of each way.
func (r *ring) cutSomehow(rnd *rand.Rand) cutEvent {
	r.t.Helper()
	a := 1 + rnd.IntN(r.n)
	right, left := a%r.n+1, (a+r.n-2)%r.n+1
	b, also := right, left
	if rnd.IntN(2) == 0 {
		b, also = left, right
	}
	e := cutEvent{r.cut(a, b), fmt.Sprintf("node %d to %d", a, b)}
	switch rnd.IntN(5) {
	case 0:
		r.cut(a, b)
		e.what += ", twice"
	case 1:
		r.cut(a, also)
		e.what += fmt.Sprintf(" and to %d", also)
	case 2:
		far := (b+b-a+r.n-1)%r.n + 1 // beyond b
		r.cut(b, far)
		e.what += fmt.Sprintf(" and %d to %d", b, far)
	case 3:
		far := (b+b-a+r.n-1)%r.n + 1
		further := (far+b-a+r.n-1)%r.n + 1
		r.cut(far, further)
		e.what += fmt.Sprintf(" and %d to %d", far, further)
	}
	return e
}

// Links of either way are cut, at either end, while a connection moves bytes,
// between neighbours or over two hops. With NTBNET_LONG it moves 1 GiB while links
// are cut 20 times.
func TestAConnectionGoesOnWhileLinksAreCutAndMended(t *testing.T) {
	size, cuts := int64(64<<20), 4
	if longRun() {
		size, cuts = 1<<30, 20
	}
	for _, to := range []int{3, 2} {
		t.Run(fmt.Sprintf("to node %d of 4", to), func(t *testing.T) {
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 3))
			r := startMembers(t, "ring", 4, "&failover=1")
			require.Equal(t, "sending", r.ask(1, "send node%d:8 %d %d", to, size, seed))
			var events []cutEvent
			for i := range cuts {
				part := size / int64(cuts+1)
				at := part*int64(i) + rnd.Int64N(part)
				r.arrived(to, at)
				events = append(events, r.cutSomehow(rnd))
			}
			got := r.receipt(1)
			require.Equal(t, size, got.Bytes)
			t.Logf("stood still for %v at the most", longestPause(t, got, events))
			ups := 0
			for _, v := range r.look().Views {
				for _, l := range v.Links {
					ups += l.Ups
				}
			}
			require.GreaterOrEqual(t, ups, 2*4, "the links came up")
			r.end()
		})
	}
}

// arrived waits until n bytes have arrived at port 8 of a node.
func (r *ring) arrived(node int, n int64) {
	r.t.Helper()
	until(r.t, "so much has arrived", func() bool {
		got, err := strconv.ParseInt(r.askSender(node, "received"), 10, 64)
		require.NoError(r.t, err)
		return got >= n
	})
}

// endlessBytes is the length of a stream that is to be broken off.
const endlessBytes = 1 << 50

func requireGone(t *testing.T, answer string) {
	t.Helper()
	require.True(t, strings.Contains(answer, syscall.ECONNRESET.Error()) || strings.Contains(answer, syscall.EHOSTUNREACH.Error()), answer)
}

// A node is killed while streams begin at it, end at it, pass through it, and are
// elsewhere. With NTBNET_LONG they are longer.
func TestAKilledNodeResetsOnlyItsOwnConnections(t *testing.T) {
	size := long(64<<20, 32<<20)
	if longRun() {
		size = 512 << 20
	}
	r := startMembers(t, "ring", 6, "&failover=1")
	// Node 2 is killed. Nodes 6 and 4 send to it, and it sends to 5. The shorter
	// way from 1 to 3 and back leads over it. 5 sends to 4. These three streams
	// begin last, so that they are under way when 2 dies.
	for _, c := range []struct {
		from, to int
		n        int64
	}{{6, 2, endlessBytes}, {4, 2, endlessBytes}, {2, 5, endlessBytes}, {5, 4, size}, {1, 3, size}, {3, 1, size}} {
		require.Equal(t, "sending", r.ask(c.from, "send node%d:8 %d %d", c.to, c.n, c.from))
		r.arrived(c.to, 1<<10)
	}
	r.nodes[2].kill()
	killed := time.Now()
	for _, from := range []int{1, 3, 5} {
		got := r.receipt(from)
		require.Equal(t, size, got.Bytes)
		t.Logf("from node %d: stood still for %v at the most", from, longestPause(t, got, []cutEvent{{killed, "killed"}}))
	}
	for _, from := range []int{6, 4} {
		requireGone(t, r.outcome(from))
	}
	r.nodes[2] = nil
	r.end()
}

// shutDirectories gives the directories by which nodes find each other a mode with which they are
// refused. So a link that is cut from now on stays down, until open is called.
func (r *ring) shutDirectories() (open func()) {
	r.t.Helper()
	set := func(mode os.FileMode) {
		for node := 1; node <= r.n; node++ {
			require.NoError(r.t, os.Chmod(filepath.Join(fabricBase(os.Geteuid()), fmt.Sprintf("%s@%d", r.name, node)), mode))
		}
	}
	set(0o755)
	r.t.Cleanup(func() { set(0o700) })
	return func() { set(0o700) }
}

// One link of each way is cut and stays down.
func TestNodesThatNoWayJoins(t *testing.T) {
	r := startMembers(t, "ring", 4, "&failover=1")
	for from, to := range map[int]int{1: 3, 3: 1, 4: 2, 2: 3} {
		n := int64(endlessBytes)
		if from == 2 {
			n = 64 << 20
		}
		require.Equal(t, "sending", r.ask(from, "send node%d:8 %d %d", to, n, from))
	}
	for node := 1; node <= 3; node++ {
		r.arrived(node, 1<<20)
	}
	r.shutDirectories()
	r.cut(1, 2)
	r.cut(3, 4)
	for _, from := range []int{1, 3, 4} {
		requireGone(t, r.outcome(from))
	}
	require.EqualValues(t, 64<<20, r.receipt(2).Bytes, "2 and 3 are neighbours still")
	answer := r.askSender(1, "reach node3:8")
	require.Contains(t, answer, syscall.EHOSTUNREACH.Error())
	for from, to := range map[int]string{1: "node4:8", 2: "node3:8"} {
		until(t, to+" is reached", func() bool { return r.askSender(from, "reach %s", to) == "ok" })
	}
	r.end()
}

// A link of a ring is cut: all four nodes see it, and that it is made again.
func TestFourNodesSeeACut(t *testing.T) {
	r := startMembers(t, "ring", 4, "")
	whole := "1+ 2+ 3+ 4+"
	for node := 1; node <= 4; node++ {
		require.Equal(t, "ok", r.ask(node, "watch"))
	}
	sees := func(want string) {
		t.Helper()
		for node := 1; node <= 4; node++ {
			until(t, fmt.Sprintf("node %d sees %s", node, want), func() bool { return r.ask(node, "seen") == want })
		}
	}
	sees(whole)
	mend := r.shutDirectories()
	r.cut(2, 3)
	sees("1+ 2right 3left 4+")
	mend()
	sees(whole)
	r.nodes[4].kill()
	r.nodes[4] = nil
	for node := 1; node <= 3; node++ {
		until(t, "node 4 is down", func() bool { return r.ask(node, "seen") == "1left 2+ 3right 4-" })
	}
	r.end()
}
