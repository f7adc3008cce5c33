//go:build linux

package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	soakVariable = "NTBNET_SOAK"
	soakSmoke    = 5 * time.Second  // length with NTBNET_LONG alone
	soakLeast    = 2 * time.Minute  // from this length on, resources must not grow
	soakSettle   = 50 * time.Second // for what was closed to go away
)

// soak is a ring of five nodes, and a host with three processes.
//
//	1         client of all, measured
//	2         between 1 and 3, measured
//	3         client and server two hops from 1, measured
//	4         stopped now and then
//	5         killed and started again
//	server    of the host, measured
//	client    of the host, measured
//	guest     of the host, client; killed and started again
//
// Some connections must not fail: those between processes that are never killed or
// stopped, and whose shorter way leads through none that is.
type soak struct {
	*ring
	fabric                string // of the host
	server, client, guest *peer
	began                 time.Time
	gap                   time.Duration // longest time between two kills
	kills, stops          int
	nextKill, nextStop    time.Time
	told                  map[*peer]int // how many bad errors of each were logged
}

func TestSoak(t *testing.T) {
	total, v := soakSmoke, os.Getenv(soakVariable)
	if v == "" && !longRun() {
		t.Skip(soakVariable + " or " + longVariable + " runs it")
	}
	if v != "" {
		var err error
		total, err = time.ParseDuration(v)
		require.NoError(t, err, soakVariable)
	}
	s := newSoak(t, total)
	s.start()
	t.Logf("%v: all run", time.Since(s.began).Round(time.Second))
	s.load(s.began.Add(total/12), 2)
	first := s.measure()
	t.Logf("%v: first measurement", time.Since(s.began).Round(time.Second))
	s.load(s.began.Add(total), s.kills+2)
	last := s.measure()
	t.Logf("%v: %d kills, %d stops\n%s", time.Since(s.began).Round(time.Second), s.kills, s.stops, soakTable(first, last))
	for _, m := range s.measured() {
		report := s.report(m.peer)
		for _, load := range soakLoads {
			if m.peer == s.server {
				continue // it does not dial
			}
			require.Positive(t, report.Done[load], "%s did nothing of %s: %v", m.name, load, report)
		}
		if total >= soakLeast {
			for _, grown := range last[m.name].since(first[m.name]) {
				t.Errorf("%s: %s", m.name, grown)
			}
		}
	}
	s.nodes = append(s.nodes, s.guest, s.client, s.server)
	s.end()
}

func newSoak(t *testing.T, total time.Duration) *soak {
	t.Helper()
	// Several of these tests may run at once.
	name := fmt.Sprintf("soak-%d-%08x", os.Getpid(), rand.Uint32())
	t.Cleanup(func() {
		dirs, err := filepath.Glob(filepath.Join(fabricBase(os.Geteuid()), name+"*"))
		require.NoError(t, err)
		for _, dir := range dirs {
			os.RemoveAll(dir)
		}
	})
	return &soak{
		ring:   &ring{t: t, topology: "ring", name: name, n: 5, role: "soak", nodes: make([]*peer, 6)},
		fabric: "shm:" + name,
		began:  time.Now(),
		told:   map[*peer]int{},
		gap:    min(max(total/36, time.Second), time.Minute),
	}
}

// start starts all processes, without their load.
func (s *soak) start() {
	s.server = startPeer(s.t, s.role, []string{s.fabric, "7"})
	require.Equal(s.t, "ready", s.server.readLine())
	s.client = startPeer(s.t, s.role, []string{s.fabric, "8", "localhost:7"})
	require.Equal(s.t, "ready", s.client.readLine())
	s.startGuest()
	for node := 1; node <= 4; node++ {
		s.startNode(node)
	}
	s.startNode(5)
}

// startNode starts a node. Its arguments name the nodes that it dials. For one with
// a "?", errors are allowed.
func (s *soak) startNode(node int) {
	s.nodes[node] = startPeer(s.t, s.role, append([]string{s.spec(node), "7"}, [][]string{
		1: {"node1:7", "node2:7", "node3:7", "node4:7?", "node5:7?"},
		2: {"node1:7", "node3:7", "node4:7?"},
		3: {"node1:7", "node2:7", "node5:7?"},
		4: {"node1:7?", "node5:7?"},
		5: {"node1:7?", "node2:7?", "node4:7?"},
	}[node]...))
	require.Equal(s.t, "ready", s.nodes[node].readLine())
}

func (s *soak) startGuest() {
	s.guest = startPeer(s.t, s.role, []string{s.fabric, "9", "localhost:7?"})
	require.Equal(s.t, "ready", s.guest.readLine())
}

// each calls f with all processes.
func (s *soak) each(f func(p *peer)) {
	for _, p := range append(s.nodes[1:], s.server, s.client, s.guest) {
		f(p)
	}
}

// load lets all processes work until end, and until the given number of kills is
// reached.
func (s *soak) load(end time.Time, kills int) {
	s.t.Helper()
	s.each(func(p *peer) { require.Equal(s.t, "loaded", p.ask("load")) })
	minute := time.Now()
	s.nextKill, s.nextStop = s.later(time.Now()), s.later(time.Now())
	for time.Now().Before(end) || s.kills < kills {
		now := time.Now()
		if now.After(s.nextKill) {
			s.killAndStart()
			s.nextKill = s.later(time.Now())
		}
		if now.After(s.nextStop) {
			s.stop()
			s.nextStop = s.later(time.Now())
		}
		if now.Sub(minute) >= min(time.Minute, 6*s.gap) {
			minute = now
			s.logState()
		}
		time.Sleep(50 * time.Millisecond)
	}
	s.logState()
	paused := time.Now()
	s.each(func(p *peer) { fmt.Fprintln(p.in, "pause") })
	s.each(func(p *peer) { require.Equal(s.t, "paused", p.readLine()) })
	s.t.Logf("paused within %v", time.Since(paused).Round(time.Millisecond))
}

// later returns a random time after t.
func (s *soak) later(t time.Time) time.Time { return t.Add(s.gap/3 + rand.N(s.gap*2/3)) }

// killAndStart kills node 5 and the guest, and starts them again after a while.
func (s *soak) killAndStart() {
	s.t.Helper()
	s.report(s.nodes[5])
	s.report(s.guest)
	s.nodes[5].kill()
	s.guest.kill()
	s.nodes[5].quiet()
	s.guest.quiet()
	time.Sleep(rand.N(s.gap / 6))
	s.startNode(5)
	s.startGuest()
	require.Equal(s.t, "loaded", s.nodes[5].ask("load"))
	require.Equal(s.t, "loaded", s.guest.ask("load"))
	s.kills++
}

// stop stops node 4 for a while. Half of the time node 5 starts again meanwhile.
func (s *soak) stop() {
	s.t.Helper()
	require.NoError(s.t, s.nodes[4].cmd.Process.Signal(syscall.SIGSTOP))
	until(s.t, "node 4 is stopped", s.nodes[4].stopped)
	time.Sleep(min(time.Second, s.gap/6) + rand.N(min(2*time.Second, s.gap/3)))
	if rand.N(2) == 0 {
		s.killAndStart()
	}
	require.NoError(s.t, s.nodes[4].cmd.Process.Signal(syscall.SIGCONT))
	s.stops++
}

// report asks a process what it has done. Errors that are not allowed fail the
// test, which goes on. An operation that does not end also ends the test.
func (s *soak) report(p *peer) (r soakReport) {
	s.t.Helper()
	p.askFor("report", &r)
	for _, bad := range r.Bad[s.told[p]:] {
		s.t.Errorf("%q: %s", p.cmd.Args[1:], bad)
	}
	s.told[p] = len(r.Bad)
	if r.Oldest > 2*soakLimit {
		p.cmd.Process.Signal(syscall.SIGQUIT) // so that the log shows its goroutines
		p.wait()
		s.t.Fatalf("%q: something takes %v: %v", p.cmd.Args[1:], r.Oldest, r)
	}
	return r
}

// logState logs what the processes have done and hold.
func (s *soak) logState() {
	s.t.Helper()
	line := fmt.Sprintf("%s %v: %d kills, %d stops", time.Now().Format(time.TimeOnly), time.Since(s.began).Round(time.Second), s.kills, s.stops)
	for _, m := range s.measured() {
		line += fmt.Sprintf("\n%9s: %v", m.name, s.report(m.peer))
	}
	s.report(s.nodes[4])
	s.report(s.nodes[5])
	s.report(s.guest)
	s.t.Log(line)
}

type soakProcess struct {
	name string
	peer *peer
}

// measured returns the processes that are never killed or stopped.
func (s *soak) measured() []soakProcess {
	return []soakProcess{
		{"node 1", s.nodes[1]}, {"node 2", s.nodes[2]}, {"node 3", s.nodes[3]}, {"server", s.server}, {"client", s.client},
	}
}

// measure returns what the processes hold when no connection is open. All links are
// up then, and all tunnels that the load needs.
func (s *soak) measure() map[string]soakHeld {
	s.t.Helper()
	s.linked()
	s.each(func(p *peer) { require.Equal(s.t, "ok", p.ask("touch")) })
	for _, m := range s.measured() { // all at once, since each takes some seconds
		_, err := fmt.Fprintln(m.peer.in, "measure")
		require.NoError(s.t, err)
	}
	all := map[string]soakHeld{}
	for _, m := range s.measured() {
		var h soakHeld
		line := m.peer.readLine()
		require.NoError(s.t, json.Unmarshal([]byte(line), &h), "%q", line)
		require.True(s.t, h.Settled, "%s does not settle: %+v", m.name, h)
		if strings.HasPrefix(m.name, "node") {
			h.Tunnels = 2 // to the nodes that are not its neighbours
		}
		all[m.name] = h
	}
	return all
}

func soakTable(first, last map[string]soakHeld) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-8s%12s%10s%10s%10s%10s\n", "process", "", "first", "last", "more", "allowed")
	for _, name := range []string{"node 1", "node 2", "node 3", "server", "client"} {
		was, is, allowed := first[name].numbers(), last[name].numbers(), first[name].allowed()
		for i, what := range soakNumbers {
			fmt.Fprintf(&b, "%-8s%12s%10d%10d%+10d%10d\n", name, what, was[i], is[i], is[i]-was[i], allowed[i])
		}
	}
	return b.String()
}
