//go:build linux

package integration

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/icelake"
	"github.com/ntbnet/ntbnet/internal/testing/pcimodel"
	"github.com/stretchr/testify/require"
)

// moduleForVM builds the kernel module of bridges and that of its tests, once, and returns the file of the named one.
func moduleForVM(t *testing.T, name string) string {
	t.Helper()
	file := filepath.Join(programs, name+".ko")
	if _, err := os.Stat(file); err != nil {
		ciCommand(t, "module", programs)
	}
	return file
}

// bridged are two machines with a bridge between them.
type bridged struct {
	t      *testing.T // of all parts
	kind   bridgeKind
	bridge pcimodel.Bridge
	iommu  [2]bool // of the machines
	system vmSystem
	sides  [2]*side
}

// side is a machine at one end of a bridge.
type side struct {
	*vm
	node    string // of the process that has the bridge
	settles time.Duration
}

// bridgeSystem is what machines with bridges start from. They have the module, which they load themselves.
func bridgeSystem(t *testing.T, kind bridgeKind, files map[string]string) vmSystem {
	t.Helper()
	disk := map[string]string{"modules/ntb_cdev.ko": moduleForVM(t, "ntb_cdev")}
	maps.Copy(disk, files)
	s := needVM(t, disk)
	s.iommu = "" // that remaps interrupts, and internal/testing/qemupci cannot
	for _, m := range kind.modules {
		s.modules = append(s.modules, m+".ko")
	}
	return s
}

// openBridge starts two machines, in which no process has the bridge yet.
func openBridge(t *testing.T, kind bridgeKind) *bridged {
	t.Helper()
	b := prepareBridge(t, kind)
	b.boot(0, 1)
	return b
}

func prepareBridge(t *testing.T, kind bridgeKind) *bridged {
	t.Helper()
	wantVM(t)
	b := &bridged{t: t, kind: kind, bridge: kind.make(), iommu: [2]bool{kind.iommu}, system: bridgeSystem(t, kind, nil)}
	b.system.variables = []string{"SDP_FABRIC=ntb"}
	return b
}

// boot starts the machines at some sides.
func (b *bridged) boot(sides ...int) {
	b.t.Helper()
	var machines []*vm
	for _, i := range sides {
		machines = append(machines, b.startSide(i))
	}
	for _, v := range machines {
		v.ready()
	}
	b.kind.loadInTurn(machines...)
	for _, v := range machines {
		v.must("load ntb_cdev")
	}
}

// startSide starts the machine at a side.
func (b *bridged) startSide(i int) *vm {
	b.t.Helper()
	s := b.system
	s.models = []pcimodel.Function{b.bridge.Functions()[i]}
	if b.iommu[i] {
		s.iommu = "intel-iommu,intremap=off"
	}
	b.sides[i] = &side{vm: s.startVM(b.t, nil, "operator"), settles: b.kind.settles}
	return b.sides[i].vm
}

// driver returns the module that drives the bridge.
func (b *bridged) driver() string {
	all := slices.Concat(b.kind.modules, b.kind.inTurn)
	return all[len(all)-1]
}

// part runs a part of a test, in which failures are those of the part. The next one runs only if it passes.
func (b *bridged) part(name string, f func(t *testing.T)) {
	passed := b.t.Run(name, func(t *testing.T) {
		report := func(to *testing.T) {
			for _, s := range b.sides {
				s.t = to
			}
		}
		if line := b.kind.without[name]; line != "" {
			t.Skip(line)
		}
		report(t)
		defer report(b.t)
		f(t)
	})
	if !passed {
		for _, s := range b.sides {
			s.showLog(b.t)
		}
		b.t.FailNow()
	}
}

// join has a process of each side take the bridge.
func (b *bridged) join() {
	for _, s := range b.sides {
		s.join()
	}
}

// leave ends these processes.
func (b *bridged) leave() {
	for _, s := range b.sides {
		s.must("end far")
	}
}

func (s *side) join() {
	s.t.Helper()
	time.Sleep(s.settles)
	require.Equal(s.t, "ready", s.must("start far far ntb"))
	s.node = s.does("node")
}

// does asks the process, logs what it answers, and returns that.
func (s *side) does(format string, args ...any) string {
	s.t.Helper()
	question, start := fmt.Sprintf(format, args...), time.Now()
	answer, ok := strings.CutPrefix(s.must("ask far %s", question), "ok ")
	s.t.Logf("%s: %s: %s (%v by the host's clock)", s.node, question, answer, time.Since(start).Round(time.Millisecond))
	require.True(s.t, ok, "%s: %s", question, answer)
	return answer
}

// converse has each of the two nodes use the other. A store of 8 bytes takes 30 µs.
func (b *bridged) converse() {
	for i, s := range b.sides {
		s.does("echo %s 20", b.sides[1-i].node)
		s.does("send %s 65536", b.sides[1-i].node)
	}
}

// get has each of them get pages of the other's, of given sizes, by HTTP.
func (b *bridged) get(sizes ...int) {
	for i, s := range b.sides {
		for _, size := range sizes {
			s.does("get %s %d", b.sides[1-i].node, size)
		}
	}
}

// lose has processes notice that the link or the other side has gone, while bytes move.
func (b *bridged) lose(survivors []int, lose func()) {
	for _, i := range survivors {
		b.sides[i].does("keep %s 4096", b.sides[1-i].node)
	}
	lose()
	for _, i := range survivors {
		why := b.sides[i].does("lost")
		require.Regexp(b.sides[i].t, "(connection reset by peer|broken pipe)$", why) // Read may have had the reset
		require.NotContains(b.sides[i].t, why, "broke the protocol")
		b.sides[i].does("drop")
	}
}

// examined has ntbnet doctor's checks find the bridge of each side, which a process has.
func (b *bridged) examined(t *testing.T) {
	for _, s := range b.sides {
		found := s.must("examine")
		t.Log(found)
		require.Contains(t, found, "module ntb_cdev, link ready, held by process ")
	}
}

// killed has each side's process killed, and another one of the same machine take its place.
func (b *bridged) killed(t *testing.T) {
	for i, s := range b.sides {
		b.lose([]int{1 - i}, func() { s.must("kill far") })
		s.join()
		b.converse()
	}
}

// stopped has each side's process stopped, as one that gets no processor, for less time than silence may last. The connections
// go on.
func (b *bridged) stopped(t *testing.T) {
	for i, s := range b.sides {
		b.sides[1-i].does("keep %s 4096", s.node)
		s.must("signal far %d", syscall.SIGSTOP)
		time.Sleep(2 * time.Second)
		s.must("signal far %d", syscall.SIGCONT)
		b.sides[1-i].does("kept")
		b.sides[1-i].does("drop")
	}
	b.converse()
}

// cut has the link go and come.
func (b *bridged) cut(t *testing.T) {
	b.lose([]int{0, 1}, b.bridge.Cut)
	b.bridge.Mend()
	b.converse()
}

// reset has a machine reset, and another one take its place.
func (b *bridged) reset(t *testing.T) {
	b.lose([]int{0}, b.sides[1].kill)
	b.boot(1)
	b.sides[1].t = t
	b.sides[1].join()
	b.converse()
}

// resetUnheard is reset without an event of the link at the other side.
func (b *bridged) resetUnheard(t *testing.T) {
	pair, ok := b.bridge.(interface{ Deafen(side int, deaf bool) })
	if !ok {
		t.Skip("this model has no event to keep away")
	}
	pair.Deafen(0, true)
	b.reset(t)
	pair.Deafen(0, false)
}

// removed has the bridge removed from a machine whose process uses it, in each way, and come back.
func (b *bridged) removed(t *testing.T) {
	s := b.sides[0]
	_, err := s.operate("unload ntb_cdev")
	require.ErrorContains(t, err, syscall.EAGAIN.Error()) // which is how the kernel says that it is in use
	const driver = "write /sys/bus/ntb/drivers/ntb_cdev/"
	for _, way := range [][2]string{
		{driver + "unbind " + function(0), driver + "bind " + function(0)},
		{"unload " + b.driver(), "load " + b.driver()},
	} {
		b.lose([]int{0, 1}, func() { s.must("%s", way[0]) })
		s.must("%s", way[1])
		time.Sleep(s.settles)
		b.converse()
	}
}

// reloaded has each side's module unloaded, and loaded again.
func (b *bridged) reloaded(t *testing.T) {
	for _, s := range b.sides {
		s.must("end far")
		s.must("unload ntb_cdev")
		s.must("load ntb_cdev")
		s.join()
		b.converse()
	}
}

// windowStores returns how often side 0 has stored through windows for clients.
func (b *bridged) windowStores() uint64 {
	if pair, ok := b.bridge.(interface{ DirectStores() [2]uint64 }); ok {
		return pair.DirectStores()[0]
	}
	return b.bridge.Counts()[0].Stores
}

// besideNetdev has ntb_netdev at one side. The other one stores nothing, and maps nothing.
func (b *bridged) besideNetdev(t *testing.T) {
	b.leave()
	own, other := b.sides[0], b.sides[1]
	other.must("unload ntb_cdev")
	before := b.windowStores()
	loadTransport(b.bridge, other.vm)
	other.must("up eth0 %s", machineAddress)
	until(t, "the module knows ntb_transport", func() bool {
		return strings.Contains(own.must("log"), "the other side runs ntb_transport")
	})
	_, err := own.operate("map /dev/ntb/%s", function(0))
	require.ErrorContains(t, err, syscall.ENOTCONN.Error())
	require.Equal(t, "ready", own.must("start far far ntb"))
	own.must("end far")
	require.Equal(t, before, b.windowStores())
	other.must("unload ntb_netdev")
	other.must("unload ntb_transport")
	other.must("load ntb_cdev")
	b.join()
	b.converse()
}

// shmem has a processing element on each side.
func (b *bridged) shmem(t *testing.T) {
	b.leave()
	for i, s := range b.sides {
		require.Equal(t, "ready", s.must("start pe pe %d", i))
	}
	for _, s := range b.sides {
		require.Equal(t, "ok", s.must("ask pe result"))
		s.must("end pe")
	}
	b.join()
}

// holder returns the process that has a side's bridge.
func (s *side) holder() string { return s.must("read /sys/class/misc/ntb!%s/holder", function(0)) }

// taken has the process that has the bridge end beside another one of its machine, which reaches the peer through it. That one
// takes the bridge.
func (b *bridged) taken(t *testing.T) {
	s, there := b.sides[0], b.sides[1].node
	require.Equal(t, "ready", s.must("start other far ntb client"))
	first := s.holder()
	answer := func() bool {
		return strings.HasPrefix(s.must("ask other echo %s 20", there), "ok ")
	}
	require.True(t, answer())
	require.Equal(t, first, s.holder())
	s.must("end far")
	until(t, "the other process has the bridge", func() bool { h := s.holder(); return h != "0" && h != first })
	until(t, "it reaches the peer", answer)
	s.join() // and now goes through the other
	b.converse()
	s.must("end other")
	until(t, "the first process has the bridge", func() bool { return s.must("ask far echo %s 20", there)[:2] == "ok" })
	b.converse()
	s.must("end far") // it would go on through what it was a member of
	s.join()
}

// inFull reports whether all parts of a test run for a kind of bridge: for the first kind, and with NTBNET_VM=all.
func inFull(kind bridgeKind) bool {
	return kind.name == bridgeKinds[0].name || os.Getenv("NTBNET_VM") == "all"
}

// TestVMBridge has two machines use each other over models of bridges, by the kernel's own drivers and the module.
func TestVMBridge(t *testing.T) {
	for _, kind := range bridgeKinds {
		t.Run(kind.name, func(t *testing.T) {
			b := openBridge(t, kind)
			b.join()
			b.part("little data", func(*testing.T) {
				if kind.iommu {
					require.Regexp(t, "^DMA", b.sides[0].must("read /sys/bus/pci/devices/%s/iommu_group/type", function(0)))
				}
				b.converse()
			})
			b.part("the doctor lists it", b.examined)
			b.part("a process is killed", b.killed)
			b.part("the cable is cut", b.cut)
			if inFull(kind) {
				b.part("a process is stopped", b.stopped)
				b.part("a page and 1 MiB", func(*testing.T) { b.get(4096, 1<<20) })
				b.part("SHMEM", b.shmem)
				b.part("selftest", b.selftest)
				b.part("another process takes the bridge", b.taken)
				b.part("the bridge is removed", b.removed)
				b.part("the module is loaded again", b.reloaded)
				b.part("ntb_netdev is the peer", b.besideNetdev)
				b.part("the peer is reset", b.reset)
				b.part("the peer is reset unheard", b.resetUnheard)
			}
			b.leave()
			for i, s := range b.sides {
				t.Logf("side %d: %+v", i, b.bridge.Counts()[i])
				s.end()
			}
		})
	}
}

// Windows may be larger than any piece of memory of a machine. Behind an IOMMU that does not matter. Without one
// the hosts do not link, and each says why.
func TestVMWindows(t *testing.T) {
	kind := bridgeKinds[0]
	kind.make = func() pcimodel.Bridge { return icelake.New(64<<20, 64<<20) }
	t.Run("IOMMU", func(t *testing.T) {
		kind := kind
		kind.iommu = true
		b := prepareBridge(t, kind)
		b.iommu[1] = true
		b.boot(0, 1)
		b.join()
		b.converse()
		b.get(1 << 20)
		b.leave()
	})
	t.Run("Switchtec's max_mw_size", func(t *testing.T) {
		kind := bridgeKinds[1]
		kind.iommu = false
		kind.inTurn = []string{"ntb_hw_switchtec max_mw_size=4194304"} // of the direct window, which has 2 MiB without it
		b := openBridge(t, kind)
		for _, s := range b.sides {
			until(t, "a window of 4 MiB each way", func() bool {
				return strings.Contains(s.must("log"), "4096 KiB here; window 0: 4096 KiB there")
			})
		}
		b.join()
		b.converse()
		b.leave()
	})
	t.Run("one without", func(t *testing.T) {
		kind := kind
		kind.iommu = true
		b := prepareBridge(t, kind)
		b.boot(0, 1)
		for i, want := range []string{
			"the other host has no window: its log says what helps",
			"windows want memory aligned to 65536 KiB, which there is not: boot with an IOMMU or cma=128M, or have the firmware make BARs of at most 4096 KiB",
		} {
			s := b.sides[i]
			until(t, want, func() bool { return strings.Contains(s.must("log"), want) })
			found := s.must("examine")
			require.Contains(t, found, []string{"the other host has no window", "no memory of this host fits a window"}[i])
			require.Equal(t, 1, strings.Count(s.must("log"), "window: its log")+strings.Count(s.must("log"), "windows want memory"))
		}
	})
}

// kernelLogSize has the kernel keep all that it says during a test, which fails by what it complains of.
const kernelLogSize = "log_buf_len=32M"

// The suites of all backends and the tests of the module pass in a machine that has both ends of a bridge.
func TestVMBridgeConformance(t *testing.T) {
	for _, kind := range bridgeKinds {
		t.Run(kind.name, func(t *testing.T) {
			wantVM(t)
			if !inFull(kind) {
				t.Skip("NTBNET_VM=all runs it")
			}
			if kind.settles > 0 {
				t.Skip("what the driver says of the link ends the first sessions")
			}
			s := bridgeSystem(t, kind, map[string]string{"tests": testsOf(t, "../ntb/ntbkernel"), "sdptests": testsOf(t, "../sdp")})
			functions := kind.make().Functions()
			s.models = functions[:]
			for _, m := range slices.Concat(kind.inTurn, []string{"ntb_cdev", "ntb_tool"}) {
				s.modules = append(s.modules, m+".ko")
			}
			s.variables = []string{kernelLogSize, "NTBNET_BRIDGES=" + function(0) + ";" + function(1)}
			machine := s.startVM(t, nil, "/tests", "-test.v", "-test.short", "-test.run=OfBridges$|^TestModule", "-test.timeout=10m",
				thenPlay, "/sdptests", "-test.v", "-test.run=^TestConnOfBridges$", "-test.timeout=10m")
			machine.passes(30)
			t.Logf("interrupts by vector, of each function: %v", machine.models.Interrupts())
		})
	}
}

// The tests of the module pass over a bridge in software, and it survives a random walk and calls of any kind. The kernel
// checks memory that is allocated and freed. NTBNET_STEPS and NTBNET_SEED are those of a walk:
//
//	NTBNET_VM=1 NTBNET_STEPS=10000 go test ./integration -run '^TestVMSoftBridge$' -timeout 2h -v
func TestVMSoftBridge(t *testing.T) {
	softBridge(t, "../ntb/ntbkernel", "-test.run=^TestModule").passes(20)
}

// Connections survive what a peer stores into any word of the window of a bridge in software.
func TestVMSoftBridgeWords(t *testing.T) {
	softBridge(t, "../sdp", "-test.run=^TestWordsOfBridges$").passes(1)
}

// softBridge starts a machine that has both ends of a bridge in software, and runs tests of a package.
func softBridge(t *testing.T, pkg, run string) *vm {
	t.Helper()
	wantVM(t)
	s := bridgeSystem(t, bridgeKind{modules: []string{"ntb", "ntb_softpair", "ntb_cdev", "ntb_tool"}}, map[string]string{
		"tests":                   testsOf(t, pkg),
		"modules/ntb_softpair.ko": moduleForVM(t, "ntb_softpair"),
	})
	s.devices = []string{"pci-testdev,addr=3", "pci-testdev,addr=4"}
	s.processors = 2
	s.variables = []string{"slub_debug=FZPU", kernelLogSize, "NTBNET_BRIDGES=" + function(0) + ";" + function(1)}
	for _, v := range []string{"NTBNET_STEPS", "NTBNET_SEED"} {
		s.variables = append(s.variables, v+"="+os.Getenv(v))
	}
	return s.startVM(t, nil, "/tests", "-test.v", run, "-test.timeout=2h")
}
