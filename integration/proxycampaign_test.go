//go:build linux

package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/metrics"
	"github.com/ntbnet/ntbnet/internal/testing/fabrictest"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/sdp"
	"github.com/stretchr/testify/require"
)

// proxyLoad is what TestProxyCampaign does to a proxy.
type proxyLoad struct {
	held int           // connections that stay open
	rate int           // connections that come and go, a second
	time time.Duration // for so long
	slow int           // clients that send much, and read a byte now and then
}

const (
	fullMap  = 10   // connections that the map "full" takes
	inFlight = 2000 // connections that come and go at once, at most
)

// proxyCampaign is a proxy with one map for each kind of target.
type proxyCampaign struct {
	t       *testing.T
	load    proxyLoad
	proxy   *process
	http    *http.Client
	ports   map[string]string // of maps, by their targets
	ended   chan struct{}     // closed when targets that hang end
	serving sync.WaitGroup
	dialled atomic.Int64
	slowest atomic.Int64 // echo of a client that is not slow, in nanoseconds
}

// campaignTargets are what the servers behind the maps do with a connection.
var campaignTargets = map[string]func(g *proxyCampaign, c *sdp.Conn){
	"echo":   func(_ *proxyCampaign, c *sdp.Conn) { io.Copy(c, c) },
	"full":   func(_ *proxyCampaign, c *sdp.Conn) { io.Copy(c, c) },
	"hang":   func(g *proxyCampaign, _ *sdp.Conn) { <-g.ended },
	"silent": func(g *proxyCampaign, c *sdp.Conn) { io.Copy(io.Discard, c); <-g.ended },
	"half":   func(_ *proxyCampaign, c *sdp.Conn) { c.CloseWrite(); io.Copy(io.Discard, c) },
	"reset":  func(_ *proxyCampaign, c *sdp.Conn) { c.Read(make([]byte, 1)); c.SetLinger(0) },
}

// newProxyCampaign starts servers and the proxy, whose log is on a disk that is full.
func newProxyCampaign(t *testing.T, load proxyLoad) *proxyCampaign {
	leak.Check(t)
	t.Setenv("SDP_FABRIC", "shm:"+fabrictest.Name(t))
	g := &proxyCampaign{t: t, load: load, ports: map[string]string{}, ended: make(chan struct{})}
	var config strings.Builder
	fmt.Fprintf(&config, "metrics: unix:%s/m\ndefaults: {dial-timeout: 1m}\nmaps:\n", shortDir(t))
	var names []string
	for name, target := range campaignTargets {
		ln, err := sdp.Listen("sdp", "localhost:0")
		require.NoError(t, err)
		t.Cleanup(func() { ln.Close() })
		g.serving.Go(func() { g.serve(ln, target) })
		most := map[string]int{"full": fullMap}[name]
		if most == 0 {
			most = load.held + load.slow + 2*inFlight
		}
		fmt.Fprintf(&config, "- {listen: 'tcp://0.0.0.0:0', target: 'sdp://%v', max-connections: %d}\n", ln.Addr(), most)
		names = append(names, name)
	}
	file := filepath.Join(t.TempDir(), "proxy.yaml")
	require.NoError(t, os.WriteFile(file, []byte(config.String()), 0o600))
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	require.NoError(t, err)
	defer full.Close()
	g.proxy = start(t, filepath.Join(programs, "sdp-proxy"), []string{"--config", file}, func(c *exec.Cmd) { c.Stderr = full })
	address := strings.TrimPrefix(strings.SplitN(config.String(), "\n", 2)[0], "metrics: ")
	g.http = metrics.Client(address)
	t.Cleanup(g.http.CloseIdleConnections)
	eventually(t, "the proxy serves", func() bool {
		r, err := g.http.Get("http://proxy/readyz")
		return err == nil && r.Body.Close() == nil && r.StatusCode == http.StatusOK
	})
	var status struct{ Maps []struct{ Map string } }
	require.NoError(t, json.Unmarshal([]byte(g.get("/connections")), &status))
	require.Len(t, status.Maps, len(names))
	for i, m := range status.Maps {
		g.ports[names[i]] = m.Map[strings.LastIndex(m.Map, ":")+1:]
	}
	return g
}

func (g *proxyCampaign) serve(ln net.Listener, target func(*proxyCampaign, *sdp.Conn)) {
	for {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		g.serving.Go(func() {
			defer c.Close()
			target(g, c.(*sdp.Conn))
		})
	}
}

// get asks the proxy for what it serves to operators.
func (g *proxyCampaign) get(path string) string {
	g.t.Helper()
	r, err := g.http.Get("http://proxy" + path)
	require.NoError(g.t, err)
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	require.NoError(g.t, err)
	return string(text)
}

// sum returns the sum of a metric's samples whose line matches.
func (g *proxyCampaign) sum(metric, matches string) (all int64) {
	g.t.Helper()
	for _, m := range regexp.MustCompile(`(?m)^sdp_proxy_`+metric+matches+` (\d+)$`).FindAllStringSubmatch(g.get("/metrics"), -1) {
		n, err := strconv.ParseInt(m[1], 10, 64)
		require.NoError(g.t, err)
		all += n
	}
	return all
}

// proxyHas is what the proxy has open.
type proxyHas struct{ descriptors, goroutines int64 }

// idle waits until no connection is open, and returns what the proxy has. Of that, at most so much may be left.
func (g *proxyCampaign) idle(most proxyHas) (has proxyHas) {
	g.t.Helper()
	eventually(g.t, "nothing is left", func() bool {
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", g.proxy.cmd.Process.Pid))
		require.NoError(g.t, err)
		has = proxyHas{int64(len(fds)), g.sum("goroutines", "")}
		return g.sum("connections_open", `\{.*\}`) == 0 && has.descriptors <= most.descriptors && has.goroutines <= most.goroutines
	})
	return has
}

// dial connects to a map, at one of several addresses, so that ports do not run out.
func (g *proxyCampaign) dial(target string) (*net.TCPConn, error) {
	n := g.dialled.Add(1)
	c, err := net.Dial("tcp", fmt.Sprintf("127.0.0.%d:%s", 1+n%16, g.ports[target]))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", target, err)
	}
	c.SetDeadline(time.Now().Add(2 * testTimeout))
	return c.(*net.TCPConn), nil
}

// echoes sends a message, and reads it again.
func (g *proxyCampaign) echoes(c net.Conn) error {
	begin := time.Now()
	var got [100]byte
	_, err := c.Write(make([]byte, len(got)))
	if err == nil {
		_, err = io.ReadFull(c, got[:])
	}
	for took := time.Since(begin).Nanoseconds(); ; {
		most := g.slowest.Load()
		if took <= most || g.slowest.CompareAndSwap(most, took) {
			return err
		}
	}
}

// visit has a connection come and go. Each second one ends by a reset.
func (g *proxyCampaign) visit(target string, i int) error {
	c, err := g.dial(target)
	if err != nil {
		return err
	}
	defer c.Close()
	if i%2 == 0 {
		c.SetLinger(0)
	}
	switch target {
	case "echo":
		return g.echoes(c)
	case "hang", "silent":
		_, err = c.Write(make([]byte, 1000))
		return err
	}
	c.Write(make([]byte, 1000)) // may meet the reset
	_, err = io.Copy(io.Discard, c)
	if target == "reset" && errors.Is(err, syscall.ECONNRESET) || target == "half" && err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", target, err)
}

// comeAndGo has connections come and go at the rate, and for the time, of the load: of 25, 20 to a good target.
func (g *proxyCampaign) comeAndGo() error {
	targets := []string{"reset", "half", "hang", "silent", "full"}
	free := make(chan struct{}, inFlight)
	errs := make(chan error, 1)
	var wg sync.WaitGroup
	begin := time.Now()
	visits := 0
	for ; time.Since(begin) < g.load.time && len(errs) == 0; visits++ {
		time.Sleep(time.Until(begin.Add(time.Duration(visits) * time.Second / time.Duration(g.load.rate))))
		i, target := visits, "echo"
		if i%25 < len(targets) {
			target = targets[i%25]
		}
		free <- struct{}{}
		wg.Go(func() {
			defer func() { <-free }()
			if target == "full" {
				g.turnedAway()
				return
			}
			if err := g.visit(target, i/25); err != nil {
				select {
				case errs <- err:
				default:
				}
			}
		})
	}
	wg.Wait()
	g.t.Logf("%d connections came and went in %v, of %d a second that were wanted; the slowest echo took %v",
		visits, time.Since(begin).Round(time.Millisecond), g.load.rate, time.Duration(g.slowest.Load()).Round(time.Millisecond))
	close(errs)
	return <-errs
}

// turnedAway meets a map that is full.
func (g *proxyCampaign) turnedAway() {
	c, err := g.dial("full")
	if err == nil {
		_, err = c.Read(make([]byte, 1))
		c.Close()
	}
	if !errors.Is(err, syscall.ECONNRESET) {
		g.t.Errorf("a map that is full: %v, want a reset", err)
	}
}

// slow sends much to a server that sends it back, and reads a byte now and then, until the campaign ends.
func (g *proxyCampaign) slow() error {
	c, err := g.dial("echo")
	if err != nil {
		return err
	}
	defer c.Close()
	c.SetLinger(0)
	c.SetDeadline(time.Time{})
	var wg sync.WaitGroup
	defer wg.Wait()
	wg.Go(func() { c.Write(make([]byte, 1<<20)) }) // until the reset
	defer c.Close()
	for {
		select {
		case <-g.ended:
			return nil
		case <-time.After(200 * time.Millisecond):
		}
		if _, err := c.Read(make([]byte, 1)); err != nil {
			return err
		}
	}
}

// hold opens connections, several at a time.
func (g *proxyCampaign) hold(target string, n int) []*net.TCPConn {
	g.t.Helper()
	held := make([]*net.TCPConn, n)
	errs := make([]error, n)
	var wg sync.WaitGroup
	var next atomic.Int64
	for range 32 {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				if held[i], errs[i] = g.dial(target); errs[i] == nil {
					errs[i] = g.echoes(held[i])
				}
			}
		})
	}
	wg.Wait()
	require.NoError(g.t, errors.Join(errs...))
	return held
}

// Many connections are open, many come and go, targets hang, reset, end half or say nothing, clients are slow, a map is full,
// and so is the disk with the log. Nothing else stalls, and nothing is left. With NTBNET_LONG it takes a minute and more.
func TestProxyCampaign(t *testing.T) {
	load := proxyLoad{held: 200, rate: 200, time: time.Second, slow: 20}
	if longRun() {
		load = proxyLoad{held: 10_000, rate: 1000, time: time.Minute, slow: 500}
	}
	g := newProxyCampaign(t, load)
	for target := range campaignTargets {
		if target != "full" {
			require.NoError(t, g.visit(target, 0)) // makes what stays
		}
	}
	before := g.idle(proxyHas{1 << 30, 1 << 30})

	begin := time.Now()
	held := append(g.hold("echo", load.held), g.hold("full", fullMap)...)
	t.Logf("%d connections were opened in %v", len(held), time.Since(begin).Round(time.Millisecond))
	var slow sync.WaitGroup
	failed := make([]error, load.slow)
	for i := range failed {
		slow.Go(func() { failed[i] = g.slow() })
	}
	require.NoError(t, g.comeAndGo())
	for _, c := range held {
		c.SetDeadline(time.Now().Add(testTimeout))
		require.NoError(t, g.echoes(c))
	}
	t.Logf("the proxy has %s", memoryOf(t, g.proxy.cmd.Process.Pid))
	require.NotZero(t, g.sum("connections_total", `\{.*end="refused"\}`))
	require.NotZero(t, g.sum("log_dropped_total", ""), "lines that no disk has room for")

	close(g.ended)
	slow.Wait()
	require.NoError(t, errors.Join(failed...))
	for _, c := range held {
		c.Close()
	}
	has := g.idle(proxyHas{before.descriptors + 8, before.goroutines + 8})
	t.Logf("the proxy had %+v before, and has %+v", before, has)
	require.Equal(t, g.dialled.Load(), g.sum("connections_total", `\{.*\}`), "each connection is counted")
	require.Zero(t, g.sum("connections_total", `\{.*end="failed"\}`))
	g.proxy.signal(syscall.SIGTERM)
	require.Zero(t, g.proxy.status())
}

// memoryOf returns what the kernel says of a process's memory.
func memoryOf(t *testing.T, pid int) string {
	t.Helper()
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	require.NoError(t, err)
	return strings.Join(regexp.MustCompile(`(?m)^(VmRSS|RssAnon|RssShmem):.*$`).FindAllString(string(b), -1), ", ")
}
