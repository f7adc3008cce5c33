package benchmarks

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// BenchmarkProxy measures programs that know only TCP through two proxies, one after the other. An operation is
// a round, in which each path has its turn. Figures are medians of the rounds, those with a / are ratios. Paths are
//
//	direct   no proxy
//	sdp      two of sdp-proxy, with SDP between them
//	tcp      two of sdp-proxy, with TCP between them
//	haproxy  two of HAProxy
//	1 tcp, 1 haproxy  one of them; in the test of connections alone
//	socat    two of socat, which start a process for each connection, and take a second for 24 of them: it is not
//	         in that test
//
// us/op is the processor time of both proxies, for a GB, a request or a connection.
func BenchmarkProxy(b *testing.B) {
	w := newProxyWorld(b)
	b.Run("test=stream", func(b *testing.B) {
		w.run(b, "GB/s", true, func(path string) (rate, operations float64) {
			var r iperfReport
			out, err := w.client(path, "iperf3", "-J", "-c", "127.0.0.1", "-p", w.ports[path][0], "-t", "1")
			if err == nil {
				err = json.Unmarshal([]byte(out), &r)
			}
			if err != nil {
				b.Fatal(err)
			}
			return r.End.Received.Rate / 8e9, r.End.Received.Bytes / 1e9
		})
	})
	for _, t := range []struct {
		name, keep string
		n          float64
	}{{"requests", "1", 30000}, {"connections", "0", 3000}} {
		b.Run("test="+t.name, func(b *testing.B) {
			w.run(b, t.name+"/s", t.keep == "1", func(path string) (rate, operations float64) {
				out, err := w.client(path, "redis-benchmark", "-p", w.ports[path][1], "-c", "50", "-k", t.keep,
					"-n", strconv.FormatFloat(t.n, 'f', 0, 64), "-t", "get", "--csv")
				if err != nil {
					b.Fatal(err)
				}
				return number(b, getRate, out), t.n
			})
		})
	}
}

// proxyWorld is servers and paths to them.
type proxyWorld struct {
	tunWorld
	ports   map[string][2]string // of a path to iperf3 and to Redis
	proxies map[string][]int     // processes of a path whose processor time is known
}

// run measures all paths, or all but socat.
func (w *proxyWorld) run(b *testing.B, unit string, socat bool, one func(path string) (rate, operations float64)) {
	cpu := map[string][]float64{}
	paths := []string{"direct", "sdp", "tcp", "haproxy", "socat"}
	if !socat {
		paths = append(paths[:4], "1 tcp", "1 haproxy")
	}
	m := measure(b, paths, func(path string) float64 {
		before := w.cpu(b, path)
		rate, operations := one(path)
		cpu[path] = append(cpu[path], (w.cpu(b, path)-before)/operations)
		return rate
	})
	for path, v := range m {
		b.ReportMetric(v, strings.ReplaceAll(path, " ", "-")+"-"+unit)
		if len(w.proxies[path]) > 0 {
			b.ReportMetric(median(cpu[path]), strings.ReplaceAll(path, " ", "-")+"-us/op")
		}
	}
	for _, path := range []string{"sdp", "tcp", "socat"} {
		if m[path] > 0 {
			b.ReportMetric(m[path]/m["haproxy"], path+"/haproxy")
		}
	}
	if one := m["1 tcp"]; one > 0 {
		b.ReportMetric(m["sdp"]/one, "sdp/1-tcp")
		b.ReportMetric(one/m["1 haproxy"], "1-tcp/1-haproxy")
	}
}

// cpu returns how many µs of processor time the proxies of a path have used.
func (w *proxyWorld) cpu(b *testing.B, path string) (us float64) {
	for _, pid := range w.proxies[path] {
		t, err := cpuTime(pid)
		if err != nil {
			b.Fatal(err)
		}
		us += float64(t) / 1e3
	}
	return us
}

func newProxyWorld(b *testing.B) *proxyWorld {
	for _, tool := range []string{"iperf3", "redis-server", "redis-benchmark", "redis-cli", "haproxy", "socat"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(b, tool)
		}
	}
	dir := b.TempDir()
	build := exec.Command("go", "build", "-o", dir, "./cmd/sdp-proxy")
	build.Dir = ".."
	succeed(b, build)
	w := &proxyWorld{ports: map[string][2]string{"direct": {freePort(b), freePort(b)}}, proxies: map[string][]int{}}
	direct := w.ports["direct"]
	w.start(b, 0, "", "iperf3", "-s", "-p", direct[0])
	w.start(b, 0, "", "redis-server", "--port", direct[1], "--save", "")
	fabric := "shm:" + w.fabric(b)
	for _, path := range []string{"sdp", "tcp", "haproxy", "socat", "1 tcp", "1 haproxy"} {
		var first, between [2]string
		for i := range first {
			first[i], between[i] = freePort(b), freePort(b)
		}
		w.ports[path] = first
		// The proxy beside the servers comes first, so that none is refused.
		kind, hops := path, [][2][2]string{{between, direct}, {first, between}}
		if one, ok := strings.CutPrefix(path, "1 "); ok {
			kind, hops = one, [][2][2]string{{first, direct}}
		}
		for i, hop := range hops {
			w.proxies[path] = append(w.proxies[path], w.proxy(b, kind, dir, fabric, i == 0, hop[0], hop[1])...)
		}
		w.until(b, path, "iperf3", "-n", "1K", "-c", "127.0.0.1", "-p", first[0])
		w.until(b, path, "redis-cli", "-e", "-p", first[1], "ping")
	}
	return w
}

// proxy starts a proxy from two ports to two others, and returns its process if its processor time is known.
func (w *proxyWorld) proxy(b *testing.B, path, dir, fabric string, beside bool, from, to [2]string) []int {
	listen, dial := "tcp://127.0.0.1:", "tcp://127.0.0.1:"
	switch {
	case path == "socat":
		for i := range from {
			w.start(b, 0, "", "socat", "-b", "65536", "TCP-LISTEN:"+from[i]+",bind=127.0.0.1,reuseaddr,fork,backlog=128,nodelay", "TCP:127.0.0.1:"+to[i]+",nodelay")
		}
		return nil
	case path == "haproxy":
		config := "global\n\tmaxconn 4096\ndefaults\n\tmode tcp\n\ttimeout connect 5s\n\ttimeout client 1m\n\ttimeout server 1m\n"
		for i := range from {
			config += fmt.Sprintf("listen l%d\n\tbind 127.0.0.1:%s\n\tserver s 127.0.0.1:%s\n", i, from[i], to[i])
		}
		file := filepath.Join(dir, "haproxy-"+from[0])
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			b.Fatal(err)
		}
		return []int{w.start(b, 0, "", "haproxy", "-db", "-f", file)}
	case path == "sdp" && beside:
		listen = "sdp://localhost:"
	case path == "sdp":
		dial = "sdp://localhost:"
	}
	return []int{w.start(b, 0, fabric, filepath.Join(dir, "sdp-proxy"), "--map", listen+from[0]+"="+dial+to[0], "--map", listen+from[1]+"="+dial+to[1])}
}

// freePort returns a port of loopback that nobody uses at present, and that no connection takes for its own end.
func freePort(b *testing.B) string {
	for range 100 {
		port := strconv.Itoa(20000 + rand.IntN(10000))
		if ln, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			ln.Close()
			return port
		}
	}
	b.Fatal("no port is free")
	return ""
}
