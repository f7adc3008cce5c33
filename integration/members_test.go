//go:build linux

package integration

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/stretchr/testify/require"
)

// memberSpec returns the spec of a process that shares a node's links.
func (r *ring) memberSpec(node int) string {
	return fmt.Sprintf("%s:%s?node=%d", r.topology, r.name, node)
}

// own starts sdp-proxy as the owner of a node's links, and nothing else.
func (r *ring) own(node int) *process {
	r.t.Helper()
	p := start(r.t, filepath.Join(programs, "sdp-proxy"), []string{"--own"}, withEnv("SDP_FABRIC="+r.spec(node)))
	p.waitFor(regexp.MustCompile(`(?m) msg="owning the links" fabric="`+regexp.QuoteMeta(r.spec(node))+`"$`), 1)
	return p
}

// listens waits until a node that was started on its own listens.
func listens(t *testing.T, p *peer, node int) *peer {
	t.Helper()
	require.Equal(t, fmt.Sprintf("node%d:7", node), p.readLine())
	return p
}

// Only the owner names the links of node 2. A server and ntbnet topology use them
// too.
func TestThreeProcessesOfOneNode(t *testing.T) {
	r := newRing(t, "ring", 4)
	server := listens(t, startPeer(t, "node", []string{r.memberSpec(2)}), 2) // before the owner
	for _, node := range []int{1, 3, 4} {
		r.begin(node)
		r.ready(node)
	}
	owner := r.own(2)
	for _, node := range []int{1, 3, 4} {
		require.Equal(t, "ok", r.ask(node, "dial node2:7 1000000"), "from node %d", node)
		require.Equal(t, "ok", server.ask(fmt.Sprintf("dial node%d:7 1000000", node)), "to node %d", node)
	}
	r.linked() // a node may be reached by another way first
	require.Equal(t, "ok", r.ask(4, "keep node2:7"))
	require.Equal(t, "ok", r.ask(1, "keep node4:7"))

	picture := filepath.Join(t.TempDir(), "ring.svg")
	perf := func(args ...string) string {
		cmd := exec.Command(filepath.Join(programs, "ntbnet"), append([]string{"topology"}, args...)...)
		cmd.Env = append(os.Environ(), "SDP_FABRIC="+r.memberSpec(2))
		out, err := cmd.Output()
		require.NoError(t, err)
		return string(out)
	}
	text := perf("--svg", picture)
	require.Regexp(t, fmt.Sprintf(`(?m)^node2\.\d+ +node2\.\d+ +%d +up `, server.cmd.Process.Pid), text)
	require.Regexp(t, `(?m)^2 +node2 - node3 +up `, text)
	svg, err := os.ReadFile(picture)
	require.NoError(t, err)
	require.Contains(t, string(svg), fmt.Sprintf("process %d and 1 more", owner.cmd.Process.Pid))
	var v status.Fabric
	require.NoError(t, json.Unmarshal([]byte(perf("--json")), &v))
	require.Equal(t, owner.cmd.Process.Pid, v.Views[1].PID)
	links := slices.DeleteFunc(v.Views[1].Links, func(l status.Link) bool { return l.Direction != "down" })
	require.Len(t, links, 1, "to a member")
	require.Equal(t, server.cmd.Process.Pid, links[0].PID)
	require.Equal(t, "up", links[0].State)
	require.Greater(t, links[0].OwnBytes+links[0].ForwardedBytes, uint64(3_000_000))

	// Another process cannot own them.
	second := start(t, filepath.Join(programs, "sdp-proxy"), []string{"--own"}, withEnv("SDP_FABRIC="+r.spec(2)))
	require.Equal(t, 2, second.status())
	require.Contains(t, second.out.String(), syscall.EADDRINUSE.Error())

	owner.signal(os.Kill)
	<-owner.exited
	require.Regexp(t, syscall.ECONNRESET.Error()+"|"+syscall.EHOSTUNREACH.Error(), r.ask(4, "use 1000"))
	require.Equal(t, "ok", r.ask(1, "use 1000000"), "the other way round is there")

	// Another process takes over, and the server goes on.
	owner = r.own(2)
	for _, node := range []int{1, 3, 4} {
		require.Equal(t, "ok", r.ask(node, "dial node2:7 1000000"), "from node %d", node)
		require.Equal(t, "ok", server.ask(fmt.Sprintf("dial node%d:7 1000000", node)), "to node %d", node)
	}
	// A member ends, and so do its connections.
	require.Equal(t, "ok", r.ask(3, "keep node2:7"))
	server.kill()
	require.Contains(t, r.ask(3, "use 1000"), syscall.ECONNRESET.Error())
	require.Contains(t, r.ask(3, "dial node2:7 1"), syscall.ECONNREFUSED.Error())
	owner.signal(syscall.SIGTERM)
	require.Zero(t, owner.status())
	r.end()
}

// A process that takes over within a second keeps the connections of its members.
func TestConnectionsOfMembersOutliveAnOwner(t *testing.T) {
	r := newRing(t, "line", 3)
	owner := r.own(2)
	client := listens(t, startPeer(t, "node", []string{r.memberSpec(2)}), 2)
	r.begin(1)
	r.begin(3)
	r.ready(1, 3)
	require.Equal(t, "ok", client.ask("keep node3:7"))
	answer := ""
	for try := 0; try < 10 && answer != "ok"; try++ { // it may take a second on a busy machine
		owner.signal(os.Kill)
		<-owner.exited
		owner = r.own(2)
		if answer = client.ask("use 1000000"); answer != "ok" {
			t.Log(answer)
			require.Equal(t, "ok", client.ask("keep node3:7"))
		}
	}
	require.Equal(t, "ok", answer)
	client.end()
	owner.signal(syscall.SIGTERM)
	require.Zero(t, owner.status())
	r.end()
}

// A member that is stopped in the middle of a flood does not stop those whose
// frames go through its node.
func TestAStoppedMemberStopsNobodyElse(t *testing.T) {
	r := newRing(t, "line", 4)
	owner := r.own(2)
	member := listens(t, startPeer(t, "node", []string{r.memberSpec(2)}), 2)
	for _, node := range []int{1, 3, 4} {
		r.begin(node)
		r.ready(node)
	}
	require.Equal(t, "ok", r.ask(1, "keep node3:7"))
	require.Equal(t, "ok", r.ask(4, "keep node2:7"))
	_, err := fmt.Fprintln(r.nodes[4].in, "use 100000000")
	require.NoError(t, err)
	require.NoError(t, member.cmd.Process.Signal(syscall.SIGSTOP))
	until(t, "the member is stopped", member.stopped)
	for range 3 {
		require.Equal(t, "ok", r.ask(1, "use 1000000"), "through the node of the one that is stopped")
		require.Equal(t, "ok", r.ask(3, "dial node1:7 1000000"))
	}
	require.True(t, member.stopped())
	require.NoError(t, member.cmd.Process.Signal(syscall.SIGCONT))
	require.Equal(t, "ok", r.nodes[4].readLine(), "nothing is lost")
	member.end()
	owner.signal(syscall.SIGTERM)
	require.Zero(t, owner.status())
	r.end()
}

// Redis runs behind sdp-proxy. Both proxies belong to nodes whose links other
// processes own.
func TestRedisBetweenMembers(t *testing.T) {
	cli := tool(t, "redis-cli")
	target := startRedis(t)
	r := newRing(t, "ring", 5)
	for node := 1; node <= 5; node++ {
		r.own(node)
	}
	proxy := func(node int, m string) string {
		p := start(t, filepath.Join(programs, "sdp-proxy"), []string{"--map", m}, withEnv("SDP_FABRIC="+r.memberSpec(node)))
		return p.waitFor(readyLine, 1)[0][1]
	}
	back := proxy(3, "sdp://:0="+target)
	_, port, _ := strings.Cut(strings.TrimPrefix(back, "sdp://"), ":")
	front := proxy(1, "tcp://127.0.0.1:0=sdp://node3:"+port)
	_, tcp, _ := strings.Cut(strings.TrimPrefix(front, "tcp://"), ":")
	require.Equal(t, "OK", strings.TrimSpace(command(t, cli, "-p", tcp, "SET", "key", "a value")))
	require.Equal(t, "a value", strings.TrimSpace(command(t, cli, "-p", tcp, "GET", "key")))
}
