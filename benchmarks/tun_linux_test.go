package benchmarks

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// BenchmarkTun measures sdp-tun by programs that know only the kernel's sockets, between two network
// namespaces. An operation is a round, in which each path has its turn. Figures are medians of the rounds,
// those with a / are their ratios. Congestion control is Reno, which each kernel has. Paths are
//
//	loopback   within a namespace
//	veth       a pair of devices of the kernel, MTU 1500
//	pair       an sdp-proxy in each namespace
//	tun        sdp-tun; its other fabrics and devices are tun-1M (window=1M), tun-1500 (MTU 1500) and
//	           tun-plain (MTU 1500 and no batches of segments)
//
// It needs root, and is skipped without.
func BenchmarkTun(b *testing.B) {
	w := newTunWorld(b)
	b.Run("test=stream", w.stream)
	for _, clients := range []int{1, 20} {
		b.Run(fmt.Sprintf("test=redis/clients=%d", clients), func(b *testing.B) { w.redis(b, clients) })
	}
	b.Run("test=load", w.load)
	b.Run("test=idle", w.idle)
}

// stream measures a TCP stream, in GB/s.
func (w *tunWorld) stream(b *testing.B) {
	m := measure(b, []string{"loopback", "veth", "pair", "tun", "tun-1M", "tun-1500", "tun-plain"}, func(path string) float64 {
		r, err := w.iperf(path, "-t", "1")
		if err != nil {
			b.Fatal(err)
		}
		return r.End.Received.Rate / 8e9
	})
	for path, v := range m {
		b.ReportMetric(v, path+"-GB/s")
	}
	for _, r := range [][2]string{{"tun", "pair"}, {"tun", "loopback"}, {"tun-1M", "tun"}, {"tun-1500", "pair"}, {"tun-1500", "tun-plain"}} {
		b.ReportMetric(m[r[0]]/m[r[1]], r[0]+"/"+r[1])
	}
}

var getRate = regexp.MustCompile(`"GET","([\d.]+)"`)

// redis measures requests per second, of clients that have one under way each.
func (w *tunWorld) redis(b *testing.B, clients int) {
	m := measure(b, []string{"loopback", "pair", "tun"}, func(path string) float64 {
		out, err := w.client(path, "redis-benchmark", "-h", w.paths[path], "-c", strconv.Itoa(clients),
			"-n", strconv.Itoa(4000+500*clients), "-t", "get", "--csv")
		if err != nil {
			b.Fatal(err)
		}
		return number(b, getRate, out)
	})
	for path, v := range m {
		b.ReportMetric(v, path+"-req/s")
	}
	b.ReportMetric(m["tun"]/m["pair"], "tun/pair")
}

var averageTime = regexp.MustCompile(`= [\d.]+/([\d.]+)/`)

// load measures a ping and the loss of datagrams of 400 Mb/s while there are four TCP streams.
func (w *tunWorld) load(b *testing.B) {
	lost := map[string][]float64{}
	m := measure(b, []string{"veth", "tun"}, func(path string) float64 {
		const seconds = "1"
		var datagrams iperfReport
		streamed, sent := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := w.iperf(path, "-P", "4", "-t", seconds)
			streamed <- err
		}()
		go func() {
			var err error
			datagrams, err = w.iperf(path, "-p", "5202", "-u", "-b", "400M", "-l", "1400", "-t", seconds)
			sent <- err
		}()
		out, err := w.client(path, "ping", "-q", "-i", "0.02", "-w", seconds, w.paths[path])
		if err := errors.Join(err, <-streamed, <-sent); err != nil {
			b.Fatal(err)
		}
		lost[path] = append(lost[path], datagrams.End.Sum.Lost)
		return number(b, averageTime, out)
	})
	for path, v := range m {
		b.ReportMetric(v, path+"-ping-ms")
		b.ReportMetric(median(lost[path]), path+"-lost-%")
	}
}

// idle measures the CPU time of a daemon that has one peer and nothing to do. An operation is a second.
func (w *tunWorld) idle(b *testing.B) {
	time.Sleep(time.Second) // what still wakes up then does so for good
	before, err := cpuTime(w.daemon)
	if err != nil {
		b.Fatal(err)
	}
	start := time.Now()
	time.Sleep(time.Duration(b.N) * time.Second)
	after, err := cpuTime(w.daemon)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64(after-before)/1e6/time.Since(start).Seconds(), "cpu-ms/s")
}

// number returns the number that a regular expression finds.
func number(b *testing.B, re *regexp.Regexp, text string) float64 {
	found := re.FindStringSubmatch(text)
	if found == nil {
		b.Fatalf("no %v in %q", re, text)
	}
	v, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		b.Fatal(err)
	}
	return v
}

// tunWorld is two namespaces, with servers in the second one and paths to it.
type tunWorld struct {
	names  [2]string         // arguments of nsenter, or "" for this process's own namespace
	paths  map[string]string // the address of the servers, for programs in the first namespace
	daemon int               // the process of sdp-tun of path tun, there
}

func newTunWorld(b *testing.B) *tunWorld {
	if f, err := os.OpenFile("/dev/net/tun", os.O_RDWR, 0); err != nil || os.Getuid() != 0 {
		b.Skipf("needs root and /dev/net/tun: %v", err)
	} else {
		f.Close()
	}
	for _, tool := range []string{"nsenter", "unshare", "ip", "ping", "iperf3", "redis-server", "redis-benchmark", "redis-cli"} {
		if _, err := exec.LookPath(tool); err != nil {
			missing(b, tool)
		}
	}
	bin := b.TempDir()
	build := exec.Command("go", "build", "-o", bin, "./cmd/sdp-tun", "./cmd/sdp-proxy")
	build.Dir = ".."
	succeed(b, build)

	w := &tunWorld{paths: map[string]string{"loopback": "127.0.0.1", "veth": "10.76.0.2", "pair": "127.0.0.1"}}
	var pids [2]string
	for i := range w.names {
		p, err := startCommand(exec.Command("unshare", "-n", "sh", "-c", "ip link set lo up && echo reno >/proc/sys/net/ipv4/tcp_congestion_control && echo up && exec cat"))
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { p.end() })
		if _, err := p.line(); err != nil {
			b.Fatal(err)
		}
		pids[i] = strconv.Itoa(p.Process.Pid)
		w.names[i] = "--net=/proc/" + pids[i] + "/ns/net"
	}
	succeed(b, exec.Command("ip", "link", "add", "veth0", "netns", pids[0], "type", "veth", "peer", "name", "veth0", "netns", pids[1]))
	for i := range w.names {
		succeed(b, w.in(i, "ip", "addr", "add", fmt.Sprintf("10.76.0.%d/24", i+1), "dev", "veth0"))
		succeed(b, w.in(i, "ip", "link", "set", "veth0", "up"))
	}

	w.start(b, 1, "", "redis-server", "--port", "6379", "--save", "", "--protected-mode", "no")
	for _, port := range []string{"5201", "5202"} {
		w.start(b, 1, "", "iperf3", "-s", "-p", port)
	}
	const proxy = "ring:%s?node=%d&nodes=2"
	name := w.fabric(b)
	w.start(b, 1, fmt.Sprintf(proxy, name, 2), filepath.Join(bin, "sdp-proxy"), "--map", "sdp://:5201=tcp://127.0.0.1:5201", "--map", "sdp://:6379=tcp://127.0.0.1:6379")
	w.start(b, 0, fmt.Sprintf(proxy, name, 1), filepath.Join(bin, "sdp-proxy"), "--map", "tcp://127.0.0.1:5201=sdp://node2:5201", "--map", "tcp://127.0.0.1:6379=sdp://node2:6379")
	for i, path := range []struct{ name, options, mtu string }{{"tun", "", "65000"}, {"tun-1M", "&window=1048576", "65000"}, {"tun-1500", "", "1500"}, {"tun-plain", "", "1500"}} {
		name := w.fabric(b)
		for node := range w.names {
			pid := w.start(b, node, fmt.Sprintf(proxy+"%s", name, node+1, path.options), filepath.Join(bin, "sdp-tun"),
				"--device", path.name, "--mtu", path.mtu, "--net4", fmt.Sprintf("10.77.%d.0/24", i), "--net6=")
			if i+node == 0 {
				w.daemon = pid
			}
		}
		w.paths[path.name] = fmt.Sprintf("10.77.%d.2", i)
	}
	for path := range w.paths { // all are up when each has carried something
		w.until(b, path, "iperf3", "-n", "1K", "-c", w.paths[path])
		w.until(b, path, "redis-cli", "-e", "-h", w.paths[path], "ping")
	}
	for node, device := range []string{"tun-plain2", "tun-plain1"} {
		succeed(b, w.in(node, "ip", "link", "set", device, "gso_max_segs", "1"))
	}
	return w
}

// fabric returns the name of a fabric, which is removed at the end.
func (w *tunWorld) fabric(b *testing.B) string {
	name := freshName()
	b.Cleanup(func() {
		if err := removeFabric(name); err != nil {
			b.Error(err)
		}
	})
	return name
}

// in returns a program in a namespace.
func (w *tunWorld) in(node int, args ...string) *exec.Cmd {
	if w.names[node] == "" {
		return exec.Command(args[0], args[1:]...)
	}
	return exec.Command("nsenter", append([]string{w.names[node], "--"}, args...)...)
}

// start starts a program that serves in a namespace until the end, and returns its process.
func (w *tunWorld) start(b *testing.B, node int, fabric string, args ...string) int {
	b.Helper()
	cmd := w.in(node, args...)
	cmd.Env = append(os.Environ(), "SDP_FABRIC="+fabric)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		cmd.Process.Signal(syscall.SIGTERM)
		defer time.AfterFunc(patience, func() { cmd.Process.Kill() }).Stop()
		cmd.Wait()
		if b.Failed() {
			b.Logf("%v\n%s", cmd, &out)
		}
	})
	return cmd.Process.Pid
}

// client runs a program that uses a path, and returns what it writes.
func (w *tunWorld) client(path string, args ...string) (string, error) {
	node := 0
	if path == "loopback" {
		node = 1
	}
	cmd := w.in(node, args...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return string(out), err
}

// until runs such a program until it succeeds.
func (w *tunWorld) until(b *testing.B, path string, args ...string) {
	b.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(50 * time.Millisecond) {
		_, err := w.client(path, args...)
		if err == nil {
			return
		}
		if time.Now().After(end) {
			b.Fatal(err)
		}
	}
}

// iperfReport is the part of what iperf3 reports that is used.
type iperfReport struct {
	End struct {
		Received struct {
			Rate  float64 `json:"bits_per_second"`
			Bytes float64
		} `json:"sum_received"`
		Sum struct {
			Lost float64 `json:"lost_percent"`
		}
	}
}

// iperf runs iperf3 over a path.
func (w *tunWorld) iperf(path string, args ...string) (r iperfReport, err error) {
	out, err := w.client(path, append([]string{"iperf3", "-J", "-c", w.paths[path]}, args...)...)
	if err == nil {
		err = json.Unmarshal([]byte(out), &r)
	}
	return r, err
}

// succeed runs a command.
func succeed(b *testing.B, cmd *exec.Cmd) {
	b.Helper()
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v: %v\n%s", cmd, err, out)
	}
}
