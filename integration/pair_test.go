//go:build linux

package integration

import (
	"fmt"
	"net"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
)

var (
	readyLine    = regexp.MustCompile(`(?m)^(?:time=\S+ level=INFO msg=listening map=(\S+) target=\S+|.*"msg":"listening","map":"(\S+?)".*)$`)
	countersLine = regexp.MustCompile(`(?m)^time=\S+ level=INFO msg=counters map=(\S+) target=(\S+) open=(\d+) total=(\d+) refused=(\d+) failed=(\d+) ` +
		`aborted=(\d+) to_target=(\d+) from_target=(\d+)$`)
)

// fabric returns the environment variable that gives a test a fabric of its own.
func fabric(t testing.TB) string { return "SDP_FABRIC=shm:" + fabrictest.Name(t) }

// proxy is a running sdp-proxy.
type proxy struct {
	*process
	listening []string // by map, such as "tcp://127.0.0.1:34567"
}

// startProxy starts sdp-proxy with these maps and waits until it is ready.
func startProxy(t testing.TB, fabric string, args []string, maps ...string) *proxy {
	t.Helper()
	return startProxyIn(t, fabric, nil, args, maps...)
}

// startProxyIn is startProxy for a process that the options change.
func startProxyIn(t testing.TB, fabric string, options []option, args []string, maps ...string) *proxy {
	t.Helper()
	args = append([]string{"--stats"}, args...)
	for _, m := range maps {
		args = append(args, "--map", m)
	}
	p := &proxy{process: start(t, filepath.Join(programs, "sdp-proxy"), args, append([]option{withEnv(fabric)}, options...)...)}
	for _, m := range p.waitFor(readyLine, len(maps)) {
		p.listening = append(p.listening, m[1]+m[2])
	}
	return p
}

// dial connects to a map of network tcp or unix.
func (p *proxy) dial(i int) net.Conn {
	p.t.Helper()
	network, address, _ := strings.Cut(p.listening[i], "://")
	c, err := net.Dial(network, address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(testTimeout))
	return c
}

// counters are the counters of one map.
type counters struct {
	open, total, refused, failed, aborted, toTarget, fromTarget int64
}

// parseCounters parses the last line of each map.
func parseCounters(t testing.TB, matches [][]string) map[string]counters {
	t.Helper()
	all := map[string]counters{}
	for _, m := range matches {
		var c counters
		for i, field := range []*int64{&c.open, &c.total, &c.refused, &c.failed, &c.aborted, &c.toTarget, &c.fromTarget} {
			if _, err := fmt.Sscan(m[3+i], field); err != nil {
				t.Fatalf("%q: %v", m[0], err)
			}
		}
		all[m[1]] = c
	}
	return all
}

// stop ends the proxy in order, and returns the counters of its first map.
func (p *proxy) stop() counters {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if s := p.status(); s != 0 {
		p.t.Errorf("sdp-proxy ends with status %d after SIGTERM", s)
	}
	return parseCounters(p.t, p.waitFor(countersLine, len(p.listening)))[p.listening[0]]
}

// pair is two proxies: front forwards from TCP to SDP, and back from SDP to the
// target.
type pair struct {
	front, back *proxy
	host, port  string // where front listens
}

// startPair puts a pair before target, "tcp://..." or "unix://...".
func startPair(t testing.TB, target string) *pair {
	t.Helper()
	return startPairWith(t, target)
}

// startPairWith is startPair with flags for both.
func startPairWith(t testing.TB, target string, args ...string) *pair {
	t.Helper()
	name := fabric(t)
	p := &pair{back: startProxy(t, name, args, "sdp://localhost:0="+target)}
	_, port := split(t, p.back.listening[0], "sdp://")
	p.front = startProxy(t, name, args, "tcp://127.0.0.1:0=sdp://localhost:"+port)
	p.host, p.port = split(t, p.front.listening[0], "tcp://")
	return p
}

func split(t testing.TB, endpoint, scheme string) (host, port string) {
	t.Helper()
	address, ok := strings.CutPrefix(endpoint, scheme)
	host, port, err := net.SplitHostPort(address)
	if !ok || err != nil {
		t.Fatalf("%q is not %sHOST:PORT: %v", endpoint, scheme, err)
	}
	return host, port
}

// stop ends both. The two networks of a map are those of its endpoints. So what the
// counters of the two agree on has passed over SDP.
func (p *pair) stop() (front, back counters) {
	p.front.t.Helper()
	front, back = p.front.stop(), p.back.stop()
	for name, c := range map[string]counters{"front": front, "back": back} {
		if c.failed != 0 || c.open != 0 {
			p.front.t.Errorf("the %s proxy's counters: %+v", name, c)
		}
	}
	return front, back
}
