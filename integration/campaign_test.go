//go:build linux

package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Variables of TestKillAndRestartCampaign.
const (
	campaignVariable = "NTBNET_CAMPAIGN"        // number of runs
	campaignSeed     = "NTBNET_CAMPAIGN_SEED"   // seed of the first run; each further run has the next seed
	campaignLength   = "NTBNET_CAMPAIGN_LENGTH" // length of a run, such as "45s"
	campaignKills    = "NTBNET_CAMPAIGN_KILLS"  // 0: no node is killed
)

const (
	// campaignTick is how often a process checks whether its pairs make progress.
	campaignTick = 50 * time.Millisecond
	// campaignLimit is the number of ticks without progress after which a pair
	// counts as stuck.
	campaignLimit = 100
)

// campaign is one run. All nodes send to all. Some of them are killed, and started
// again within a second.
type campaign struct {
	*ring
	seed  uint64
	rng   *rand.Rand
	limit int // in ticks
	chunk int // bytes that count as progress
	env   []string
	up    []bool // by node: it has reported that it listens
	alive []bool // by node: it was started, and not killed
	lines chan campaignLine
	kills int
	begun time.Time // when all nodes had reported that they listen
	// worst is the longest time for which each pair made no progress.
	worst map[string]standstill
}

// standstill is the number of ticks for which a pair made no progress, and when
// that ended.
type standstill struct {
	ticks int
	until time.Duration // since begun
}

// campaignLine is a line that a process writes.
type campaignLine struct {
	node int
	from *peer
	text string
	over bool // the process has ended
}

func newCampaign(t *testing.T, seed uint64, topology string, n int) *campaign {
	c := &campaign{
		ring: newRing(t, topology, n), seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), limit: campaignLimit,
		chunk: campaignChunk, up: make([]bool, n+1), alive: make([]bool, n+1), lines: make(chan campaignLine), worst: map[string]standstill{},
	}
	c.role = "campaign"
	return c
}

// begin starts a node.
func (c *campaign) begin(node int) {
	args := []string{c.spec(node), fmt.Sprint(c.rng.Uint32()), fmt.Sprint(c.limit), fmt.Sprint(c.chunk)}
	p := startPeer(c.t, c.role, args, func(cmd *exec.Cmd) { cmd.Env = append(cmd.Env, c.env...) })
	c.nodes[node], c.alive[node] = p, true
	done := make(chan struct{})
	c.t.Cleanup(func() { close(done) })
	go func() {
		send := func(l campaignLine) {
			select {
			case c.lines <- l:
			case <-done:
			}
		}
		for line := range p.lines {
			send(campaignLine{node: node, from: p, text: line})
		}
		send(campaignLine{node: node, from: p, over: true})
	}()
}

// kill kills a node.
func (c *campaign) kill(node int) {
	c.up[node] = false
	c.sendReach() // before the node is gone
	c.alive[node] = false
	c.kills++
	go c.nodes[node].kill() // it may have more to write
	<-c.nodes[node].exited
}

// reaches reports whether there is a way of running nodes from one to another.
func (c *campaign) reaches(from, to int) bool {
	if !c.up[from] || !c.up[to] {
		return false
	}
	if c.topology == "mesh" {
		return true
	}
	for _, step := range []int{1, c.n - 1} {
		for at := from; at != to; {
			next := (at-1+step)%c.n + 1
			if !c.up[next] || c.topology == "line" && at-next != 1 && next-at != 1 {
				break
			}
			if at = next; at == to {
				return true
			}
		}
	}
	return false
}

// sendReach sends each node the list of those which nodes it can reach.
func (c *campaign) sendReach() {
	for from := 1; from <= c.n; from++ {
		if !c.up[from] {
			continue
		}
		line := "reach"
		for to := 1; to <= c.n; to++ {
			if to != from && c.reaches(from, to) {
				line += fmt.Sprint(" ", to)
			}
		}
		fmt.Fprintln(c.nodes[from].in, line) // the node may be about to report a failure
	}
}

// run kills nodes and starts them again for that long, with at most most of them
// dead at a time. It checks that each pair makes progress.
func (c *campaign) run(length time.Duration, most int) {
	for node := range c.n {
		c.begin(node + 1)
	}
	for slices.Contains(c.up[1:], false) {
		c.next(nil)
	}
	c.begun = time.Now()
	end := time.After(length)
	kill := time.After(c.pause(2500))
	again := make(chan int, c.n)
	for {
		select {
		case line := <-c.lines:
			c.heard(line)
		case <-kill:
			kill = time.After(c.pause(2500))
			if most == 0 {
				continue
			}
			node := 1 + c.rng.IntN(c.n)
			if c.up[node] && c.dead() < most {
				c.kill(node)
				time.AfterFunc(c.pause(1000), func() { again <- node })
			}
		case node := <-again:
			c.begin(node)
		case <-end:
			for c.dead() > 0 || slices.Contains(c.up[1:], false) {
				c.next(again)
			}
			c.finish()
			return
		}
	}
}

// finish waits until each pair has made progress since all nodes run. Then it asks for
// the longest times without progress.
func (c *campaign) finish() {
	for node := 1; node <= c.n; node++ {
		fmt.Fprintln(c.nodes[node].in, "finish")
	}
	for left := c.n; left > 0; {
		if c.next(nil) == "finished" {
			left--
		}
	}
	for node := 1; node <= c.n; node++ {
		c.alive[node] = false
		go c.nodes[node].kill()
		<-c.nodes[node].exited
	}
}

// next waits for a line, or for a node that is to be started.
func (c *campaign) next(again <-chan int) string {
	select {
	case line := <-c.lines:
		return c.heard(line)
	case node := <-again:
		c.begin(node)
	case <-time.After(2 * testTimeout):
		c.t.Fatalf("seed %d: nobody says anything; up: %v", c.seed, c.up[1:])
	}
	return ""
}

func (c *campaign) dead() (n int) {
	for _, alive := range c.alive[1:] {
		if !alive {
			n++
		}
	}
	return n
}

func (c *campaign) pause(most int) time.Duration {
	return time.Duration(c.rng.IntN(most)) * time.Millisecond
}

// heard handles a line of a process, and returns it.
func (c *campaign) heard(l campaignLine) string {
	c.t.Helper()
	if l.from != c.nodes[l.node] || !c.alive[l.node] {
		return "" // the node was killed
	}
	what, rest, _ := strings.Cut(l.text, " ")
	switch {
	case l.over:
		c.t.Fatalf("seed %d: node %d has ended by itself", c.seed, l.node)
	case what == fmt.Sprintf("node%d:7", l.node):
		c.up[l.node] = true
		c.sendReach()
	case what == "worst":
		to, ticks, _ := strings.Cut(rest, " ")
		n, err := strconv.Atoi(ticks)
		require.NoError(c.t, err)
		pair := fmt.Sprintf("%d to %s", l.node, to)
		if n > c.worst[pair].ticks {
			c.worst[pair] = standstill{n, time.Since(c.begun)}
		}
	case what == "stuck":
		var to int
		_, err := fmt.Sscan(rest, &to)
		require.NoError(c.t, err)
		c.show(l.node, to)
		c.t.Fatalf("seed %d: from node %d to node %s ticks without progress", c.seed, l.node, rest)
	case what != "finished":
		c.t.Fatalf("seed %d: node %d: %s", c.seed, l.node, l.text)
	}
	return what
}

// show prints what all nodes know, and the stacks of all goroutines of some.
func (c *campaign) show(nodes ...int) {
	out, err := exec.Command(filepath.Join(programs, "ntbnet"), "topology", "--json", "--fabric", c.topology+":"+c.name).Output()
	var v struct{ Views []json.RawMessage }
	if err == nil {
		err = json.Unmarshal(out, &v)
	}
	for _, view := range v.Views {
		var of struct{ Node int }
		if json.Unmarshal(view, &of) == nil && slices.Contains(nodes, of.Node) {
			c.t.Logf("%s", view)
		}
	}
	if err != nil {
		c.t.Logf("ntbnet topology: %v", err)
	}
	for _, node := range nodes {
		if c.alive[node] {
			c.nodes[node].cmd.Process.Signal(syscall.SIGQUIT)
			go func() { // until it has written everything
				for range c.nodes[node].lines {
				}
			}()
			select {
			case <-c.nodes[node].exited:
			case <-time.After(10 * time.Second):
			}
		}
	}
}

// longest returns the pairs that were longest without progress.
func (c *campaign) longest() string {
	pairs := slices.SortedFunc(maps.Keys(c.worst), func(a, b string) int { return c.worst[b].ticks - c.worst[a].ticks })
	var s []string
	for _, pair := range pairs[:min(3, len(pairs))] {
		w := c.worst[pair]
		s = append(s, fmt.Sprintf("%s for %d ticks until %v", pair, w.ticks, w.until.Round(time.Millisecond)))
	}
	return strings.Join(s, "; ")
}

// randomCampaign returns a campaign with random parameters.
func randomCampaign(t *testing.T, seed uint64) *campaign {
	rng := rand.New(rand.NewPCG(seed, 1))
	one := func(of ...string) string { return of[rng.IntN(len(of))] }
	c := newCampaign(t, seed, one("ring", "ring", "line", "mesh"), 3+rng.IntN(6))
	frame := one("", "", "256", "1024", "8192")
	if frame != "" {
		size, _ := strconv.Atoi(frame)
		c.chunk = min(c.chunk, 4*size) // so many bytes or less are moved by as many frames
		frame = "&frame=" + frame
	}
	c.options = "&window=1048576" + one("", "", "&slots=2", "&slots=3", "&slots=4") + frame +
		one("", "", "&lanes=2") + one("", "", "&failover=1")
	c.env = append(c.env, one("", "", "GOMAXPROCS=1"))
	return c
}

// NTBNET_CAMPAIGN sets the number of runs:
//
//	NTBNET_CAMPAIGN=20 go test ./integration -run TestKillAndRestartCampaign -timeout 60m -v
//
// In each run, 3 to 8 nodes form a ring, a line or a mesh, with slots and frames of any
// size. All send up to 1 MB to each other, again and again, with checksums. Meanwhile some
// are killed, and started again within a second. A pair whose nodes both run, with a way
// between them, must make progress within 100 ticks of 50 ms. A goroutine of the sending
// process counts them.
func TestKillAndRestartCampaign(t *testing.T) {
	runs, _ := strconv.Atoi(os.Getenv(campaignVariable))
	if runs == 0 {
		t.Skipf("takes minutes; %s=20 makes 20 runs", campaignVariable)
	}
	seed := rand.Uint64() >> 32
	if s := os.Getenv(campaignSeed); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	length := 45 * time.Second
	if s := os.Getenv(campaignLength); s != "" {
		var err error
		length, err = time.ParseDuration(s)
		require.NoError(t, err)
	}
	for i := range runs {
		seed := seed + uint64(i)
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			c := randomCampaign(t, seed)
			t.Logf("%s of %d, %q, %q", c.topology, c.n, c.options, c.env)
			most := max(1, c.n/3) // dead at the same time
			if os.Getenv(campaignKills) == "0" {
				most = 0
			}
			c.run(length, most)
			t.Logf("%d kills; stood still: %s", c.kills, c.longest())
		})
	}
}

// This is a short run of the same. The only limit is a guard against a standstill for good:
// run ends when each pair has made progress since all nodes run.
func TestNodesThatAreKilledAndStartAgainAreReached(t *testing.T) {
	c := newCampaign(t, rand.Uint64()>>32, "ring", 3)
	c.limit = 20 * campaignLimit
	c.options = "&window=1048576&slots=2&frame=1024"
	c.run(3*time.Second, 1)
}
