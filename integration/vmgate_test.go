//go:build linux

package integration

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/amd"
	"github.com/ntbnet/ntbnet/internal/testing/epf"
	"github.com/ntbnet/ntbnet/internal/testing/icelake"
	"github.com/ntbnet/ntbnet/internal/testing/pcimodel"
	"github.com/ntbnet/ntbnet/internal/testing/switchtec"
	"github.com/stretchr/testify/require"
)

// bridgeKind is a model of a bridge, and the kernel's driver for it.
type bridgeKind struct {
	name    string
	make    func() pcimodel.Bridge
	modules []string
	// iommu has a machine at one side of TestVMBridge have an IOMMU.
	iommu bool
	// inTurn are modules that the second machine loads when the first has.
	inTurn []string
	// fails has the parts of TestVMGate that fail, with the line of the kernel's tree that makes them fail.
	fails map[string]string
	// settles is how long after its start a driver says for the last time that the link has changed, which ends
	// sessions.
	settles time.Duration
	// without has the parts of TestVMBridge that the driver cannot go through, with the line that is why.
	without map[string]string
}

var bridgeKinds = []bridgeKind{
	{
		name:    "icelake",
		make:    func() pcimodel.Bridge { return icelake.New(1<<20, 2<<20) },
		modules: []string{"ntb", "ntb_hw_intel"},
		iommu:   true,
		fails: map[string]string{
			"perf": "drivers/ntb/test/ntb_perf.c, perf_setup_inbuf: ntb_mw_get_align(perf->ntb, peer->pidx, perf->gidx, ...) " +
				"asks for the size of one window, and ntb_mw_set_trans(perf->ntb, peer->pidx, peer->gidx, ...) sets the other",
		},
	},
	{
		name:    "switchtec",
		make:    func() pcimodel.Bridge { return switchtec.New() },
		modules: []string{"ntb", "switchtec"},
		// QEMU 7.2 often crashes when this machine turns its IOMMU on or off: the proxy device's memory listener gives the
		// global lock away, and the page of the IOMMU's registers is freed while a store to them is under way.
		iommu: os.Getenv("NTBNET_VM") == "all",
		// Both sides lock the same words. At once, one of them would fail with EIO.
		inTurn: []string{"ntb_hw_switchtec"},
	},
	{
		name:    "epf",
		make:    func() pcimodel.Bridge { return epf.New(epf.Sample()) },
		modules: []string{"ntb", "ntb_hw_epf"},
		without: map[string]string{
			"the cable is cut": "drivers/ntb/hw/epf/ntb_hw_epf.c, ntb_epf_peer_db_set: db_offset = readl(...), " +
				"which a cut cable answers with ones, and writel(db_data, ndev->db_reg + ... + db_offset)",
		},
	},
	{
		name:    "amd",
		make:    func() pcimodel.Bridge { return amd.New(1<<20, 2<<20) },
		modules: []string{"ntb", "ntb_hw_amd"},
		iommu:   true,
		settles: 2 * time.Second, // amd_link_hb, after AMD_LINK_HB_TIMEOUT
		without: map[string]string{
			"the cable is cut": "drivers/ntb/hw/amd/ntb_hw_amd.c, amd_link_is_up: amd_clear_side_info_reg(ndev, true), " +
				"after which the other side's driver has to find its function anew",
		},
	},
}

// loadInTurn has machines load the modules of inTurn.
func (k bridgeKind) loadInTurn(machines ...*vm) {
	for _, m := range k.inTurn {
		for _, v := range machines {
			v.must("load %s", m)
		}
	}
}

// gateKinds are those of TestVMGate. With windows of one size, the fault of ntb_perf does not show. The kernel's tools expect
// that link_disable takes the link down, which AMD's does not.
func gateKinds() []bridgeKind {
	equal := bridgeKinds[0]
	equal.name += " with equal windows"
	equal.make = func() pcimodel.Bridge { return icelake.New(1<<20, 1<<20) }
	equal.fails = nil
	kinds := append(bridgeKinds[:len(bridgeKinds):len(bridgeKinds)], equal)
	return slices.DeleteFunc(kinds, func(k bridgeKind) bool { return k.settles > 0 })
}

// gate is a pair of machines, each with one side of a bridge.
type gate struct {
	t      *testing.T
	bridge pcimodel.Bridge
	sides  [2]*vm
	tool   bool // ntb_tool is loaded
}

// openGate starts the machines.
func openGate(t *testing.T, kind bridgeKind) *gate {
	t.Helper()
	s := needMatrix(t, nil)
	s.iommu = ""
	for _, m := range kind.modules {
		s.modules = append(s.modules, m+".ko")
	}
	g := &gate{t: t, bridge: kind.make()}
	for i, f := range g.bridge.Functions() {
		s.models = []pcimodel.Function{f}
		g.sides[i] = s.startVM(t, nil, "operator")
	}
	for _, v := range g.sides {
		v.ready()
	}
	kind.loadInTurn(g.sides[:]...)
	return g
}

// loadTool has both machines load ntb_tool, and enable the link, or unload it.
func (g *gate) loadTool(load bool) error {
	if g.tool == load {
		return nil
	}
	g.tool = load
	if !load {
		return g.both("unload ntb_tool")
	}
	return errors.Join(g.both("load ntb_tool"), g.both("write %s/link Y", toolDir), g.both("write %s/link_event Y", toolPeer))
}

// both has both machines carry out a command.
func (g *gate) both(format string, args ...any) error {
	for _, v := range g.sides {
		if _, err := v.operate(format, args...); err != nil {
			return err
		}
	}
	return nil
}

// way is one of the two directions of a gate.
type way struct {
	from, to *vm
	counts   func() pcimodel.Counts // of the side that is from
}

// eachWay calls f for both directions.
func (g *gate) eachWay(f func(w way) error) error {
	for i := range g.sides {
		counts := func() pcimodel.Counts { return g.bridge.Counts()[i] }
		if err := f(way{g.sides[i], g.sides[1-i], counts}); err != nil {
			return fmt.Errorf("from side %d: %w", i, err)
		}
	}
	return nil
}

// Where ntb_tool has its files, and those of the peer. The function's address is that of the first model.
const (
	toolDir     = "/sys/kernel/debug/ntb_tool/0000:00:03.0"
	toolPeer    = toolDir + "/peer0"
	pingpongDir = "/sys/kernel/debug/ntb_pingpong/0000:00:03.0"
	perfDir     = "/sys/kernel/debug/ntb_perf/0000:00:03.0"
)

// number returns the value of a file that has a number.
func (v *vm) number(file string) (uint64, error) {
	text, err := v.operate("read %s", file)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(text, 0, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return n, nil
}

// await waits until a file has what ok accepts.
func (v *vm) await(file string, ok func(text string) bool) error {
	for end := time.Now().Add(testTimeout); ; {
		text, err := v.operate("read %s", file)
		if err != nil || ok(text) {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("%s stays %q", file, text)
		}
	}
}

// want waits until a file has a value.
func (v *vm) want(file string, value uint64) error {
	err := v.await(file, func(text string) bool {
		n, err := strconv.ParseUint(text, 0, 64)
		return err == nil && n == value
	})
	if err != nil {
		err = fmt.Errorf("%w, not %#x", err, value)
	}
	return err
}

// gateParts are the parts of TestVMGate, in this order. They do what tools/testing/selftests/ntb/ntb_test.sh of the
// kernel's tree does, and more: stores through windows, and frames of ntb_netdev.
var gateParts = []struct {
	name string
	try  func(g *gate) error
}{
	{"pingpong", tryPingpong},
	{"netdev", tryNetdev},
	{"tool: ports", tryPorts},
	{"tool: link", tryLink},
	{"tool: doorbells", tryDoorbells},
	{"tool: scratchpads", tryScratchpads},
	{"tool: windows", tryWindows},
	{"perf", tryPerf}, // last, since it cannot be unloaded where it is stuck
}

// TestVMGate has the kernel's own tools, on the kernel's own drivers, use each model of a bridge. What fails is known
// by the line of the kernel's tree.
func TestVMGate(t *testing.T) {
	for _, kind := range gateKinds() {
		t.Run(kind.name, func(t *testing.T) {
			g := openGate(t, kind)
			for _, part := range gateParts {
				t.Run(part.name, func(t *testing.T) {
					require.NoError(t, g.loadTool(strings.HasPrefix(part.name, "tool: ")))
					before := g.bridge.Counts()
					err := part.try(g)
					for i, c := range g.bridge.Counts() {
						t.Logf("side %d: %v; interrupts until now %v", i, c.Sub(before[i]), g.sides[i].models.Interrupts())
					}
					if line := kind.fails[part.name]; line != "" {
						require.Error(t, err, "it should fail by %s", line)
						t.Logf("%v, as %s has it", err, line)
						return
					}
					require.NoError(t, err)
				})
			}
			if m, ok := g.bridge.(interface{ Strangers() []uint64 }); ok {
				require.Empty(t, m.Strangers(), "registers that the model does not have")
			}
			for _, v := range g.sides {
				v.showLog(t)
				if len(kind.fails) > 0 { // what is stuck may stay so
					v.kill()
				} else {
					v.end()
				}
			}
		})
	}
}

// tryPingpong has doorbells go to and fro.
func tryPingpong(g *gate) error {
	if err := g.both("load ntb_pingpong delay_ms=1"); err != nil {
		return err
	}
	var errs [2]error
	for i, v := range g.sides {
		errs[i] = v.await(pingpongDir+"/count", func(text string) bool {
			rounds, _ := strconv.Atoi(text)
			return rounds >= 20
		})
	}
	return errors.Join(errs[0], errs[1], g.both("unload ntb_pingpong"))
}

// perfBytes is how much tryPerf stores.
const perfBytes = 1 << 16

// tryPerf has ntb_perf store through a window.
func tryPerf(g *gate) error {
	err := errors.Join(g.both("load ntb_perf total_order=16 chunk_order=12"), g.eachWay(func(w way) error {
		before := w.counts()
		if _, err := w.from.operate("write %s/run 0", perfDir); err != nil {
			return err
		}
		text, err := w.from.operate("read %s/run", perfDir)
		if err != nil {
			return err
		}
		c := w.counts().Sub(before)
		g.t.Logf("%s: %d stores, %d lost", text, c.Stores, c.Lost)
		if !strings.Contains(text, fmt.Sprintf("copied %d bytes", perfBytes)) || c.Bytes < perfBytes || c.Lost > 0 {
			return fmt.Errorf("%d bytes have reached the peer, and %d stores and loads nobody: %s", c.Bytes, c.Lost, text)
		}
		return nil
	}))
	if err != nil {
		return err // to unload it now could take for ever
	}
	return g.both("unload ntb_perf")
}

// tryNetdev has machines ping each other by ntb_netdev.
func tryNetdev(g *gate) error {
	loadTransport(g.bridge, g.sides[:]...)
	addresses := [2]string{hostAddress, machineAddress}
	var errs [2]error
	for i, v := range g.sides {
		v.must("up eth0 %s", addresses[i])
	}
	for i, v := range g.sides {
		errs[i] = v.await("/sys/class/net/eth0/carrier", func(text string) bool { return text == "1" })
	}
	err := errors.Join(errs[:]...)
	if err == nil {
		err = g.pingEachWay(addresses)
	}
	return errors.Join(err, g.both("unload ntb_netdev"), g.both("unload ntb_transport"))
}

// loadTransport loads ntb_netdev, and what is below it, while there is no link. One that came up at that time could stay
// unused: ntb_transport_probe has ntb_transport_link_cleanup run, which cancels the work of a link event that is before it.
func loadTransport(bridge pcimodel.Bridge, machines ...*vm) {
	bridge.Cut()
	for _, v := range machines {
		v.must("load ntb_transport")
		v.must("load ntb_netdev")
	}
	bridge.Mend()
}

func (g *gate) pingEachWay(addresses [2]string) error {
	return g.eachWay(func(w way) error {
		other := addresses[0]
		if w.from == g.sides[0] {
			other = addresses[1]
		}
		for _, size := range []int{0, 56, 1400, 20000} {
			if _, err := w.from.operate("ping %s 3 %d", other, size); err != nil {
				return err
			}
		}
		return nil
	})
}

// tryPorts compares the machines' ports.
func tryPorts(g *gate) error {
	return g.eachWay(func(w way) error {
		port, err := w.from.number(toolDir + "/port")
		if err != nil {
			return err
		}
		return w.to.want(toolPeer+"/port", port)
	})
}

// tryLink has each side disable its link and enable it again.
func tryLink(g *gate) error {
	return g.eachWay(func(w way) error {
		for _, state := range []string{"N", "Y"} {
			w.from.must("write %s/link %s", toolDir, state)
			for _, v := range []*vm{w.from, w.to} {
				if _, err := v.operate("write %s/link_event %s", toolPeer, state); err != nil { // which waits for it
					return err
				}
				if is := v.must("read %s/link", toolPeer); is != state {
					return fmt.Errorf("the link is %s, not %s", is, state)
				}
			}
		}
		return nil
	})
}

// tryDoorbells rings one doorbell after the other, and has one wake who waits for it.
func tryDoorbells(g *gate) error {
	return g.eachWay(func(w way) error {
		valid, err := w.from.number(toolDir + "/db_valid_mask")
		if err != nil {
			return err
		}
		if _, err := w.to.operate("write %s/db c %#x", toolDir, valid); err != nil {
			return err
		}
		var rung uint64
		for bit := range 64 {
			if valid>>bit&1 == 0 {
				continue
			}
			if err := w.to.want(toolDir+"/db", rung); err != nil {
				return err
			}
			rung |= 1 << bit
			if _, err := w.from.operate("write %s/peer_db s %#x", toolDir, uint64(1)<<bit); err != nil {
				return err
			}
		}
		if err := w.to.want(toolDir+"/db", valid); err != nil {
			return err
		}
		for _, command := range []string{"db_mask c %#x", "db_event %#x", "db_mask s %#x", "db c %#x"} {
			if _, err := w.to.operate("write "+toolDir+"/"+command, valid); err != nil {
				return err
			}
		}
		return w.to.want(toolDir+"/db", 0)
	})
}

// tryScratchpads writes each scratchpad of the peer.
func tryScratchpads(g *gate) error {
	return g.eachWay(func(w way) error {
		count, err := strconv.Atoi(w.from.must("list %s/spad*", toolPeer))
		if err != nil || count == 0 {
			return fmt.Errorf("%d scratchpads, %w", count, err)
		}
		for i := range count {
			value := uint64(0x1000000 + 17*i)
			if _, err := w.from.operate("write %s/spad%d %d", toolPeer, i, value); err != nil {
				return err
			}
			if err := w.to.want(fmt.Sprintf("%s/spad%d", toolDir, i), value); err != nil {
				return err
			}
		}
		return nil
	})
}

// windowBytes is how much tryWindows stores in a window.
const windowBytes = 1 << 14

// tryWindows stores through each window, and loads.
func tryWindows(g *gate) error {
	return g.eachWay(func(w way) error {
		count, err := strconv.Atoi(w.to.must("list %s/mw_trans*", toolPeer))
		if err != nil || count == 0 {
			return fmt.Errorf("%d windows, %w", count, err)
		}
		for i := range count {
			if err := tryWindow(w, i); err != nil {
				return fmt.Errorf("window %d: %w", i, err)
			}
		}
		return nil
	})
}

func tryWindow(w way, i int) error {
	own, peer := fmt.Sprintf("%s/mw%d", toolPeer, i), fmt.Sprintf("%s/peer_mw%d", toolPeer, i)
	if _, err := w.to.operate("write %s/mw_trans%d %d", toolPeer, i, windowBytes); err != nil {
		return err
	}
	text, err := w.to.operate("read %s/mw_trans%d", toolPeer, i)
	if err != nil {
		return err
	}
	_, address, _ := strings.Cut(text, "DMA Address")
	address, _, _ = strings.Cut(strings.TrimSpace(address), "\n")
	if _, err := w.from.operate("write %s/peer_mw_trans%d %s:%d", toolPeer, i, address, windowBytes); err != nil {
		return err
	}
	for _, from := range []struct {
		writes, reads *vm
		write, read   string
	}{{w.to, w.from, own, peer}, {w.from, w.to, peer, own}} {
		sum, err := from.writes.operate("fill %s %d %d", from.write, windowBytes, i+len(from.write))
		if err != nil {
			return err
		}
		got, err := from.reads.operate("sum %s %d", from.read, windowBytes)
		if err != nil {
			return err
		}
		if got != sum {
			return fmt.Errorf("%s has not what was written to %s", from.read, from.write)
		}
	}
	if _, err := w.from.operate("write %s/peer_mw_trans%d %s:0", toolPeer, i, address); err != nil {
		return err
	}
	_, err = w.to.operate("write %s/mw_trans%d 0", toolPeer, i)
	return err
}
