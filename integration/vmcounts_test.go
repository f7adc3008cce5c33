//go:build linux

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/pcimodel"
	"github.com/stretchr/testify/require"
)

// traffic is what both sides of a bridge did, and the processor time of both machines.
type traffic struct {
	counts     [2]pcimodel.Counts
	interrupts [2]uint64
	used       [2]time.Duration
}

// counted are two machines with a bridge between them, whose traffic is counted by the model.
type counted struct {
	t      *testing.T
	bridge pcimodel.Bridge
	sides  [2]*vm
}

// startCounted starts machines that have further modules, and play far with what arguments returns for a side.
func startCounted(t *testing.T, s vmSystem, kind bridgeKind, modules []string, arguments func(side int) []string) *counted {
	t.Helper()
	c := &counted{t: t, bridge: kind.make()}
	c.bridge.Cut() // for the reason that loadTransport has
	s.iommu = ""
	for _, m := range slices.Concat(kind.modules, modules) {
		s.modules = append(s.modules, m+".ko")
	}
	for i, f := range c.bridge.Functions() {
		s.models = []pcimodel.Function{f}
		args := arguments(i)
		if len(args) > 1 {
			s.variables = []string{addressVariable + "=" + args[1]}
		}
		c.sides[i] = s.startVM(t, nil, append([]string{"far"}, args...)...)
	}
	for _, v := range c.sides {
		v.ready()
	}
	c.bridge.Mend()
	return c
}

// now returns the traffic until now.
func (c *counted) now() (n traffic) {
	c.t.Helper()
	n.counts = c.bridge.Counts()
	for i, v := range c.sides {
		for _, sent := range v.models.Interrupts()[0] {
			n.interrupts[i] += sent
		}
		n.used[i] = processTime(c.t, v.cmd.Process.Pid)
	}
	return n
}

// processTime returns how long a process has run. The kernel's unit of it is a hundredth of a second.
func processTime(t *testing.T, pid int) time.Duration {
	t.Helper()
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	require.NoError(t, err)
	fields := words(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	user, err := strconv.Atoi(fields[11])
	require.NoError(t, err)
	system, err := strconv.Atoi(fields[12])
	require.NoError(t, err)
	return time.Duration(user+system) * time.Second / 100
}

// cost is what both sides did together.
type cost struct{ stores, bytes, loads, lost, reads, writes, doorbells, interrupts float64 }

// between returns the cost of what happened since before, each of n times.
func (c *counted) between(before traffic, n float64) (sum cost) {
	c.t.Helper()
	after := c.now()
	for i := range c.sides {
		d := after.counts[i].Sub(before.counts[i])
		sum.stores += float64(d.Stores) / n
		sum.bytes += float64(d.Bytes) / n
		sum.loads += float64(d.Loads) / n
		sum.lost += float64(d.Lost) / n
		sum.reads += float64(d.RegisterReads) / n
		sum.writes += float64(d.RegisterWrites) / n
		for _, rung := range d.Doorbells {
			sum.doorbells += float64(rung) / n
		}
		sum.interrupts += float64(after.interrupts[i]-before.interrupts[i]) / n
	}
	return sum
}

func (a cost) minus(b cost) cost {
	return cost{a.stores - b.stores, a.bytes - b.bytes, a.loads - b.loads, a.lost - b.lost, a.reads - b.reads, a.writes - b.writes,
		a.doorbells - b.doorbells, a.interrupts - b.interrupts}
}

func (a cost) String() string {
	return fmt.Sprintf("%.1f stores of %.0f bytes, %.1f loads across, %.1f lost, %.1f register reads, %.1f writes, %.1f doorbells, %.1f interrupts",
		a.stores, a.bytes, a.loads, a.lost, a.reads, a.writes, a.doorbells, a.interrupts)
}

// of has the first side carry out a command, and returns its cost.
func (c *counted) of(format string, args ...any) cost {
	c.t.Helper()
	before := c.now()
	answer := c.sides[0].ask(fmt.Sprintf(format, args...))
	require.True(c.t, strings.HasPrefix(answer, "ok "), answer)
	return c.between(before, 1)
}

// Sizes of what is counted. What connections cost to open is in a command of less, and taken away.
const (
	countedRounds = 50
	countedBytes  = 1 << 20
	idleTime      = 5 * time.Second
)

// measure logs what a round trip of 64 bytes costs, 1 MiB to a node, and a second of idle. How often a side sleeps, and is
// woken by a doorbell, depends on how slow the machines are. What is certain is that all bytes go over the bridge.
func (c *counted) measure(name, node string) {
	c.t.Helper()
	until(c.t, "the link is up", func() bool { return strings.HasPrefix(c.sides[0].ask("echo "+node+" 1"), "ok ") })
	few := c.of("echo %s 1", node)
	many := c.of("echo %s %d", node, 1+countedRounds)
	round := many.minus(few)
	for _, v := range []*float64{&round.stores, &round.bytes, &round.loads, &round.lost, &round.reads, &round.writes, &round.doorbells, &round.interrupts} {
		*v /= countedRounds
	}
	short := c.of("stream %s 65536", node)
	mebibyte := c.of("stream %s %d", node, 65536+countedBytes).minus(short)
	before := c.now()
	time.Sleep(idleTime)
	idle := c.between(before, idleTime.Seconds())
	after := c.now()
	c.t.Logf("%s, a round trip of 64 bytes: %v", name, round)
	c.t.Logf("%s, 1 MiB: %v", name, mebibyte)
	c.t.Logf("%s, a second of idle: %v; a machine's processor is used for %v and %v of %v", name, idle,
		after.used[0]-before.used[0], after.used[1]-before.used[1], idleTime)
	require.GreaterOrEqual(c.t, round.bytes, 2*64.0)
	require.GreaterOrEqual(c.t, mebibyte.bytes, float64(countedBytes))
}

// end ends both machines.
func (c *counted) end() {
	for _, v := range c.sides {
		v.end()
	}
}

// TestVMGateCounts has what ntb_netdev and this transport do over the same bridge in its log, by the model's counts and not
// by the clock.
func TestVMGateCounts(t *testing.T) {
	module := filepath.Join(t.TempDir(), "ntb_cdev.ko")
	if os.Getenv("NTBNET_VM") == "all" {
		ciCommand(t, "module", module)
	}
	s := needMatrix(t, map[string]string{"modules/ntb_cdev.ko": module})
	kind := bridgeKinds[0]

	t.Run("ntb_netdev", func(t *testing.T) {
		addresses := [2]string{hostAddress, machineAddress}
		c := startCounted(t, s, kind, []string{"ntb_transport", "ntb_netdev"}, func(side int) []string {
			return []string{"mem:far", addresses[side]}
		})
		c.measure("TCP over ntb_netdev", addresses[1])
		c.end()
	})
	t.Run("sdp", func(t *testing.T) {
		c := startCounted(t, s, kind, []string{"ntb_cdev"}, func(int) []string { return []string{"ntb"} })
		c.measure("SDP", "node2") // that of the higher port
		c.end()
	})
}
