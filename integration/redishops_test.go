//go:build linux

package integration

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// startPairOn is startPair with the proxies on two nodes of a fabric of several
// hosts. The other nodes run already.
func startPairOn(r *ring, front, back int, target string) *pair {
	r.t.Helper()
	on := func(node int) string { return "SDP_FABRIC=" + r.spec(node) }
	p := &pair{back: startProxy(r.t, on(back), nil, "sdp://localhost:0="+target)}
	_, port := split(r.t, p.back.listening[0], "sdp://")
	p.front = startProxy(r.t, on(front), nil, fmt.Sprintf("tcp://127.0.0.1:0=sdp://node%d:%s", back, port))
	p.host, p.port = split(r.t, p.front.listening[0], "tcp://")
	return p
}

// The proxies are 1, 2 and 4 hops apart. The nodes between them only forward. With
// NTBNET_LONG there are more requests.
func TestRedisOverHops(t *testing.T) {
	cli, benchmark := tool(t, "redis-cli"), tool(t, "redis-benchmark")
	requests := long(2000, 500)
	if longRun() {
		requests = 20_000
	}
	target := startRedis(t)
	for _, c := range []struct {
		topology   string
		n, at      int
		failover   string
		forwarding bool
	}{
		{"ring", 3, 2, "", false}, {"ring", 3, 2, "&failover=1", false},
		{"ring", 4, 3, "", true}, {"line", 5, 5, "", true},
	} {
		t.Run(fmt.Sprintf("%s, node 1 to %d of %d%s", c.topology, c.at, c.n, c.failover), func(t *testing.T) {
			r := newRing(t, c.topology, c.n)
			r.options = c.failover
			for node := 2; node <= c.n; node++ {
				if node != c.at {
					r.begin(node)
					r.ready(node)
				}
			}
			p := startPairOn(r, 1, c.at, target)
			for _, cmd := range [][2]string{{"PING", "PONG"}, {"SET key value", "OK"}, {"GET key", "value"}} {
				out := command(t, cli, append([]string{"-h", p.host, "-p", p.port}, words(cmd[0])...)...)
				require.Equal(t, cmd[1], strings.TrimSpace(out), "%s", cmd[0])
			}
			for _, pipeline := range []string{"1", "16"} {
				out := command(t, benchmark, "-h", p.host, "-p", p.port,
					"-t", "set,get", "-n", fmt.Sprint(requests), "-c", "20", "-d", "1000", "-q", "-P", pipeline)
				require.Regexp(t, `SET: [0-9.]+ requests per second`, out)
				require.Regexp(t, `GET: [0-9.]+ requests per second`, out)
				require.NotRegexp(t, regexp.MustCompile(`(?i)err|could not|reset|closed`), out)
			}
			forwarded := r.forwarded()
			front, back := p.stop()
			for name, c := range map[string]counters{"front": front, "back": back} {
				require.GreaterOrEqual(t, c.total, int64(2*2*20), name)
				require.GreaterOrEqual(t, c.toTarget, 2*requests*1000, name)
				require.GreaterOrEqual(t, c.fromTarget, 2*requests*1000, name)
			}
			if c.forwarding {
				require.Greater(t, forwarded, uint64(4*requests*1000), "it went through the others")
			}
			r.end()
		})
	}
}
