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
	campaignVariable = "NTBNET_CAMPAIGN"        // how many runs
	campaignSeed     = "NTBNET_CAMPAIGN_SEED"   // of the first run; the next one has the next
	campaignLength   = "NTBNET_CAMPAIGN_LENGTH" // of a run, as in "45s"
	campaignKills    = "NTBNET_CAMPAIGN_KILLS"  // 0: nobody is killed
)

const (
	// campaignTick is how often a process looks whether its pairs get on.
	campaignTick = 50 * time.Millisecond
	// campaignLimit is after how many ticks without progress a pair stands still.
	campaignLimit = 100
)

// campaign is one run: nodes that all send to all, of which some are killed and started
// again within a second.
type campaign struct {
	*ring
	seed  uint64
	rng   *rand.Rand
	limit int // ticks
	chunk int // bytes that are progress
	env   []string
	up    []bool // by node: it has said that it listens
	alive []bool // it was started, and not killed
	lines chan campaignLine
	kills int
	begun time.Time // when all nodes had said that they listen
	// worst is for how long each pair stood still at the most.
	worst map[string]standstill
}

// standstill is for how many ticks a pair got nowhere, until when.
type standstill struct {
	ticks int
	until time.Duration // since begun
}

// campaignLine is what a process says.
type campaignLine struct {
	node int
	from *peer
	text string
	over bool // it has ended
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
		say := func(l campaignLine) {
			select {
			case c.lines <- l:
			case <-done:
			}
		}
		for line := range p.lines {
			say(campaignLine{node: node, from: p, text: line})
		}
		say(campaignLine{node: node, from: p, over: true})
	}()
}

// kill kills a node.
func (c *campaign) kill(node int) {
	c.up[node] = false
	c.tellReach() // before it is gone
	c.alive[node] = false
	c.kills++
	go c.nodes[node].kill() // which may have more to say
	<-c.nodes[node].exited
}

// reaches reports whether a way of nodes that run leads from one to another.
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

// tellReach tells each node which it can reach.
func (c *campaign) tellReach() {
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
		fmt.Fprintln(c.nodes[from].in, line) // it may be about to say that it failed
	}
}

// run kills and starts again for that long, with at most so many dead at a time, and
// looks that each pair gets on.
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

// finish waits until each pair has got on since all nodes run, and asks for the longest
// times that any stood still.
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
	case <-time.After(2 * peerPatience):
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

// heard handles what a process says, and returns it.
func (c *campaign) heard(l campaignLine) string {
	c.t.Helper()
	if l.from != c.nodes[l.node] || !c.alive[l.node] {
		return "" // it was killed
	}
	what, rest, _ := strings.Cut(l.text, " ")
	switch {
	case l.over:
		c.t.Fatalf("seed %d: node %d has ended by itself", c.seed, l.node)
	case what == fmt.Sprintf("node%d:7", l.node):
		c.up[l.node] = true
		c.tellReach()
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

// show prints what all nodes know, and what the goroutines of two do.
func (c *campaign) show(nodes ...int) {
	out, err := exec.Command(filepath.Join(programs, "sdp-perf"), "topology", "--json", "--fabric", c.topology+":"+c.name).Output()
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
		c.t.Logf("sdp-perf topology: %v", err)
	}
	for _, node := range nodes {
		if c.alive[node] {
			c.nodes[node].cmd.Process.Signal(syscall.SIGQUIT)
			go func() { // until it has written all
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

// longest says which pairs stood still for the longest times.
func (c *campaign) longest() string {
	pairs := slices.SortedFunc(maps.Keys(c.worst), func(a, b string) int { return c.worst[b].ticks - c.worst[a].ticks })
	var s []string
	for _, pair := range pairs[:min(3, len(pairs))] {
		w := c.worst[pair]
		s = append(s, fmt.Sprintf("%s for %d ticks until %v", pair, w.ticks, w.until.Round(time.Millisecond)))
	}
	return strings.Join(s, "; ")
}

// randomCampaign is a run of any kind.
func randomCampaign(t *testing.T, seed uint64) *campaign {
	rng := rand.New(rand.NewPCG(seed, 1))
	one := func(of ...string) string { return of[rng.IntN(len(of))] }
	c := newCampaign(t, seed, one("ring", "ring", "line", "mesh"), 3+rng.IntN(6))
	frame := one("", "", "256", "1024", "8192")
	if frame != "" {
		size, _ := strconv.Atoi(frame)
		c.chunk = min(c.chunk, 4*size) // or less is moved by as many frames
		frame = "&frame=" + frame
	}
	c.options = "&window=1048576" + one("", "", "&slots=2", "&slots=3", "&slots=4") + frame +
		one("", "", "&lanes=2") + one("", "", "&failover=1")
	c.env = append(c.env, one("", "", "GOMAXPROCS=1"))
	return c
}

// A campaign of runs as NTBNET_CAMPAIGN says:
//
//	NTBNET_CAMPAIGN=20 go test ./integration -run TestKillAndRestartCampaign -timeout 60m -v
//
// In each, 3 to 8 nodes of a ring, a line or a mesh, of any size of slots and frames, all
// send up to 1 MB to each other, again and again, with checksums, while some are killed,
// and started again within a second. A pair whose nodes both run, with a way between
// them, must not stand still for 100 ticks of 50 ms, counted by a goroutine of the process
// that sends.
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

// The same, for a moment, with nothing but a guard against standing still for good: run ends
// when each pair has got on since all nodes run.
func TestNodesThatAreKilledAndStartAgainAreReached(t *testing.T) {
	c := newCampaign(t, rand.Uint64()>>32, "ring", 3)
	c.limit = 20 * campaignLimit
	c.options = "&window=1048576&slots=2&frame=1024"
	c.run(3*time.Second, 1)
}
