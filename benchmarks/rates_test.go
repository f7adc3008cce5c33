package benchmarks

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// besides are what other processes do meanwhile: nothing, compute, wake often for a moment, or build a program.
var besides = []struct {
	name, role string
	n          int
}{{"nothing", "", 0}, {"loops2", "load", 2}, {"loops4", "load", 4}, {"wakers6", "wake", 6}, {"build", "build", 1}}

// BenchmarkRates makes requests at a rate, whatever the answers take. Clients sleep by timers between requests, as those of a server do,
// and each has a connection. A request's time begins when its client has slept, or when it was due if its client was still busy then.
// An operation is a round, in which each transport has a turn of
// half a second, and SDP another one: "again" says how far figures differ without any change. Figures are medians of the rounds: the
// median, the 90th and the 99th percentile of the answers' times, and the processor time of both processes for a request. Those
// with a / are ratios. For rows under a quota, run it in a cgroup with cpu.max:
//
//	mkdir /sys/fs/cgroup/quota && echo "50000 100000" >/sys/fs/cgroup/quota/cpu.max
//	(echo $BASHPID >/sys/fs/cgroup/quota/cgroup.procs; exec go test -run '^$' -bench Rates/beside=nothing -benchtime 5x)
func BenchmarkRates(b *testing.B) {
	for _, beside := range besides {
		for _, c := range []struct{ conns, rate, size int }{
			{1, 1000, 64}, {1, 10000, 64}, {8, 100, 64}, {8, 1000, 64}, {8, 10000, 64}, {8, 10000, 1 << 10}, {32, 1000, 64}, {32, 10000, 64}, {32, 50000, 64},
		} {
			b.Run(fmt.Sprintf("beside=%s/test=echo/conns=%d/rate=%d/size=%s", beside.name, c.conns, c.rate, sizeText(c.size)), func(b *testing.B) {
				rates(b, beside.role, beside.n, c.conns, c.rate, func(p *pair, network string) (request, error) {
					conn, err := p.open(network, opEcho, c.size)
					return request{conn, echoOnce(conn, c.size)}, err
				})
			})
		}
		b.Run(fmt.Sprintf("beside=%s/test=grpc/conns=32/rate=10000/size=64", beside.name), func(b *testing.B) {
			rates(b, beside.role, beside.n, 32, 10000, func(p *pair, network string) (request, error) { return p.callOnce(network, 64) })
		})
		for _, rate := range []int{1000, 10000} {
			b.Run(fmt.Sprintf("beside=%s/test=http/conns=32/rate=%d/size=1K", beside.name, rate), func(b *testing.B) {
				rates(b, beside.role, beside.n, 32, rate, func(p *pair, network string) (request, error) {
					client := p.client(network, 1)
					return request{closes(client.CloseIdleConnections), func() error { return getOnce(client, 1<<10) }}, nil
				})
			})
		}
	}
}

// request makes requests by a connection of its own.
type request struct {
	io.Closer
	do func() error
}

// closes is an io.Closer.
type closes func()

func (c closes) Close() error { c(); return nil }

func echoOnce(c net.Conn, size int) func() error {
	p := make([]byte, size)
	return func() error {
		_, err := c.Write(p)
		if err == nil {
			_, err = io.ReadFull(c, p)
		}
		return err
	}
}

func rates(b *testing.B, role string, others, conns, rate int, open func(p *pair, network string) (request, error)) {
	p := pairOf(b, "")
	clients := map[string][]request{}
	paths := []string{"sdp", "tcp", "again", "unix"}
	for _, path := range paths {
		for range conns {
			r, err := open(p, strings.Replace(path, "again", "sdp", 1))
			if err != nil {
				b.Fatal(err)
			}
			defer r.Close()
			clients[path] = append(clients[path], r)
		}
	}
	for range others {
		if _, err := startFor(b, role, nil).line(); err != nil {
			b.Fatal(err)
		}
	}
	figures := map[string]map[string][]float64{"p90": {}, "p99": {}, "cpu": {}}
	m := measure(b, paths, func(path string) float64 {
		before := p.cpu(b)
		times := atRate(b, clients[path], rate)
		figures["cpu"][path] = append(figures["cpu"][path], (p.cpu(b)-before)/float64(len(times)))
		slices.Sort(times)
		at := func(part float64) float64 { return float64(times[int(part*float64(len(times)))]) / 1e3 }
		figures["p90"][path] = append(figures["p90"][path], at(0.9))
		figures["p99"][path] = append(figures["p99"][path], at(0.99))
		return at(0.5)
	})
	report := func(name string, m map[string]float64) {
		for path, v := range m {
			b.ReportMetric(v, path+"-"+name+"-us")
		}
		b.ReportMetric(m["sdp"]/m["tcp"], name+":sdp/tcp")
		b.ReportMetric(m["sdp"]/m["again"], name+":sdp/again")
	}
	report("p50", m)
	for name, paths := range figures {
		m := map[string]float64{}
		for path, values := range paths {
			m[path] = median(values)
		}
		report(name, m)
	}
}

// atRate makes requests for half a second, so many a second by all clients, and returns how long each took.
func atRate(b *testing.B, clients []request, rate int) (all []time.Duration) {
	const lasts = 500 * time.Millisecond
	var (
		mu   sync.Mutex
		wait sync.WaitGroup
	)
	pause := time.Duration(len(clients)) * time.Second / time.Duration(rate)
	begin := time.Now()
	for _, c := range clients {
		due := begin.Add(rand.N(pause))
		wait.Go(func() {
			var times []time.Duration
			for ; due.Sub(begin) < lasts; due = due.Add(pause) {
				start := due // the answer before it was late
				if d := time.Until(due); d > 0 {
					time.Sleep(d)
					start = time.Now() // timers are late by up to a millisecond
				}
				if err := c.do(); err != nil {
					b.Error(err)
					break
				}
				times = append(times, time.Since(start))
			}
			mu.Lock()
			defer mu.Unlock()
			all = append(all, times...)
		})
	}
	wait.Wait()
	if len(all) == 0 {
		b.Fatal("no request was made")
	}
	return all
}

// cpu returns how many µs of processor time both processes have used.
func (p *pair) cpu(b *testing.B) (us float64) {
	for _, pid := range []int{os.Getpid(), p.peer.Process.Pid} {
		t, err := cpuTime(pid)
		if err != nil {
			b.Fatal(err)
		}
		us += float64(t) / 1e3
	}
	return us
}

// build builds part of the standard library again and again.
func build([]string) error {
	exitWithParent()
	fmt.Println("builds")
	for {
		cmd := exec.Command("go", "build", "-a", "net/http")
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
	}
}

// wake wakes each 100 µs and computes for 20.
func wake([]string) error {
	exitWithParent()
	fmt.Println("wakes")
	for {
		time.Sleep(100 * time.Microsecond)
		for begin := time.Now(); time.Since(begin) < 20*time.Microsecond; {
			sink++
		}
	}
}
