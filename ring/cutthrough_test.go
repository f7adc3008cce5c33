package ring

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/ntbnet/ntbnet/internal/frame"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/testing/leak"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/stretchr/testify/require"
)

// passage is what a host saw of a write: when each of its frames came and went, and
// its place in the order of what all hosts saw.
type passage struct {
	seen                 map[pass]bool
	came, went           []int
	cameTimes, wentTimes []time.Duration
}

type pass struct {
	seq  uint32
	sent bool
}

// A write of 1 MiB over three hops is forwarded before it is complete. Each host
// sends its beginning on before it has received its end. With -v a table has the
// times.
func TestEachHopSendsBeforeItHasReceivedTheEnd(t *testing.T) {
	leak.Check(t)
	const hosts, size = 4, 1 << 20
	var mu sync.Mutex
	var seen [hosts + 1]passage
	step := 0
	start := time.Now()
	o := Options{Hosts: hosts, Topology: Line, Slots: 8} // less than a write takes
	f := &fabric{t: t, o: o, cable: map[int]*Link{}}
	var see [hosts + 1]func(f frame.Header, sent bool)
	for host := 1; host <= hosts; host++ {
		seen[host].seen = map[pass]bool{}
		n := joined(t, link.MakeID(host, 1), o)
		see[host] = func(f frame.Header, sent bool) {
			if f.Kind != frame.Data || f.Src.Host() != 1 || f.Length < 1024 {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			p, at := &seen[host], time.Since(start)
			this := pass{f.Seq, sent}
			if p.seen[this] {
				return // on a slow machine frames are sent again
			}
			p.seen[this] = true
			step++
			if sent {
				p.went, p.wentTimes = append(p.went, step), append(p.wentTimes, at)
			} else {
				p.came, p.cameTimes = append(p.came, step), append(p.cameTimes, at)
			}
		}
		f.nodes = append(f.nodes, n)
	}
	f.wrap = func(host int, _ Direction, dev ntb.Device) ntb.Device {
		return &spied{dev, &f.nodes[host-1].router.opts, see[host]}
	}
	for i := range f.cables() {
		f.connect(i)
	}
	t.Cleanup(f.close)
	f.waitLinkStates(t)
	d, far := f.tunnels(t, 1, hosts)
	buf := make([]byte, size)
	for i := range buf {
		buf[i] = byte(i >> 8)
	}
	mu.Lock()
	start, step = time.Now(), 0
	mu.Unlock()
	w := d.Outbound()
	w.Write(4096, buf)
	w.Publish64(0, 1)
	d.settle()
	require.Equal(t, buf, far.Inbound()[4096:4096+size])

	// A host gives credit for the last frame after that is answered.
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		for host := 2; host <= hosts; host++ {
			if len(seen[host].came) < len(seen[1].went) {
				return false
			}
		}
		return true
	}, 60*time.Second, time.Millisecond)
	mu.Lock()
	defer mu.Unlock()
	frames := len(seen[1].went)
	require.GreaterOrEqual(t, frames, size/DefaultFrame)
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "host\tfirst received\tfirst sent\tlast received\tlast sent\tframes\t")
	for host := 1; host <= hosts; host++ {
		p := seen[host]
		cell := func(list []time.Duration, i int) string {
			if len(list) == 0 {
				return "-"
			}
			return list[i].Round(100 * time.Nanosecond).String()
		}
		last := frames - 1
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%d\t\n", host, cell(p.cameTimes, 0), cell(p.wentTimes, 0),
			cell(p.cameTimes, last), cell(p.wentTimes, last), frames)
		if host > 1 {
			require.Len(t, p.came, frames, "host %d", host)
		}
		if host > 1 && host < hosts {
			require.Len(t, p.went, frames, "host %d", host)
			require.Less(t, p.went[0], p.came[last], "host %d has sent nothing before it had all", host)
		}
	}
	table.Flush()
	t.Logf("one write of %d KiB over %d hops:\n%s", size>>10, hosts-1, b.String())
}
