//go:build linux

package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ntbnet/ntbnet/internal/testing/pcimodel"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// The files of the kernel that startKernel starts.
const (
	nextKernel = "kexec/kernel"
	nextInitrd = "kexec/initrd"
)

// startKernel starts another kernel in the place of this one, with the same command line. No firmware runs, and no
// device is reset. It returns only if that fails.
func startKernel([]string) (string, error) {
	line, err := os.ReadFile("/proc/cmdline")
	if err != nil {
		return "", err
	}
	kernel, err := os.Open("/" + nextKernel)
	if err != nil {
		return "", err
	}
	defer kernel.Close()
	initrd, err := os.Open("/" + nextInitrd)
	if err != nil {
		return "", err
	}
	defer initrd.Close()
	if err := unix.KexecFileLoad(int(kernel.Fd()), int(initrd.Fd()), strings.TrimSpace(string(line)), 0); err != nil {
		return "", fmt.Errorf("kexec_file_load: %w", err)
	}
	return "", unix.Reboot(unix.LINUX_REBOOT_CMD_KEXEC)
}

// playPour stores all the time, in turn by a node of the module and by the file of a BAR. The module does not know of
// that file, as when the peer is hostile.
func playPour(p *self) error {
	var places [2][]byte
	for i, offset := range []int64{peerOffset, 0} {
		f, err := os.OpenFile(p.args[i], os.O_RDWR, 0)
		if err != nil {
			return err
		}
		defer f.Close()
		for end := time.Now().Add(testTimeout); ; time.Sleep(time.Millisecond) {
			places[i], err = unix.Mmap(int(f.Fd()), offset, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
			if err != unix.ENOTCONN || time.Now().After(end) { // the link begins anew with each process
				break
			}
		}
		if err != nil {
			return fmt.Errorf("%s: %w", p.args[i], err)
		}
		defer unix.Munmap(places[i])
	}
	p.printf("ready")
	ended := make(chan struct{})
	go func() { p.stay(); close(ended) }()
	for i := 0; ; i++ {
		select {
		case <-ended:
			return nil
		default:
			places[i%2][i/2%os.Getpagesize()] = 0xa5
		}
	}
}

// closing is a side of a bridge. It notes how many of the peer's stores had arrived when this side's machine last wrote
// a register.
type closing struct {
	pcimodel.Function
	bridge pcimodel.Bridge // of which it is the second function
	stores atomic.Uint64
}

func (c *closing) Write(bar int, offset uint64, size int, value uint64) {
	c.Function.Write(bar, offset, size, value)
	if bar == 0 {
		c.stores.Store(c.bridge.Counts()[0].Stores)
	}
}

// A machine's kernel starts another one while the peer stores. The first one's module closes the window. Nothing
// reaches the memory of the second one until that has loaded the module, too.
func TestVMKexec(t *testing.T) {
	wantVM(t)
	kind := bridgeKinds[0]
	bridge := kind.make()
	s := bridgeSystem(t, kind, nil)
	s.modules = nil                         // loaded below
	s.variables = []string{"iomem=relaxed"} // the files of BARs can be mapped beside a driver
	again := bridgeSystem(t, kind, map[string]string{
		nextKernel: filepath.Join(filepath.Dir(s.kernel), strings.Replace(filepath.Base(s.kernel), "vmlinux", "vmlinuz", 1)),
		nextInitrd: s.initrd,
	})
	s.models = []pcimodel.Function{bridge.Functions()[0]}
	peer := s.startVM(t, nil, "operator")
	last := &closing{Function: bridge.Functions()[1], bridge: bridge}
	s.initrd, s.models = again.initrd, []pcimodel.Function{last}
	machine := s.startVM(t, nil, "operator")
	for _, v := range []*vm{peer, machine} {
		v.ready()
		for _, m := range append(kind.modules, "ntb_cdev") {
			v.must("load %s", m)
		}
	}
	for _, v := range []*vm{machine, peer} { // the mappings of the last one last
		until(t, "the link is ready", func() bool { return strings.Contains(v.must("log"), "link is ready") })
		require.Equal(t, "ready", v.must("start pour pour /dev/ntb/%s /sys/bus/pci/devices/%[1]s/resource4", function(0))) // of the larger window
	}
	arrive := func(side int) {
		before := bridge.Counts()[side].Stores
		until(t, "stores arrive", func() bool { return bridge.Counts()[side].Stores > before })
	}
	arrive(0)
	arrive(1)

	start := time.Now()
	require.Equal(t, "ready", machine.ask("kexec"))
	c := bridge.Counts()[0]
	t.Logf("another kernel runs after %v: %v", time.Since(start).Round(time.Millisecond), c)
	assert.Zero(t, int(c.Stores-last.stores.Load()), "stores have arrived since the first kernel last wrote a register")
	// The driver has the function master the bus again, before it writes registers.
	for _, m := range kind.modules {
		machine.must("load %s", m)
	}
	lost := bridge.Counts()[0].Lost
	until(t, "the peer stores on", func() bool { return bridge.Counts()[0].Lost > lost })
	assert.Zero(t, int(bridge.Counts()[0].Stores-c.Stores), "stores have arrived in the second kernel's memory")
	machine.must("load ntb_cdev")
	arrive(0)
	peer.must("end pour")
	peer.end()
	machine.end()
}
