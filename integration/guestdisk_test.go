//go:build linux

package integration

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// archive is an initial RAM disk: a cpio archive of the form "newc".
type archive struct {
	bytes.Buffer
	entries int
}

// add adds a file or, where content is nil, a directory.
func (a *archive) add(name string, mode uint32, content []byte) {
	a.entries++
	// The fields are the inode, the mode, user, group, links, time, size, four numbers
	// of devices, the length of the name with its end, and a sum that is not used.
	fmt.Fprintf(a, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00",
		a.entries, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name)+1, 0, name)
	a.align()
	a.Write(content)
	a.align()
}

// align pads to four bytes.
func (a *archive) align() { a.Write(make([]byte, -a.Len()&3)) }

// Modules of the kernel, in the order in which they are loaded.
var (
	vfioModules = []string{
		"virt/lib/irqbypass.ko", "drivers/vfio/vfio.ko", partOfVFIO,
		"drivers/vfio/vfio_iommu_type1.ko", "drivers/vfio/pci/vfio-pci-core.ko", "drivers/vfio/pci/vfio-pci.ko",
	}
	networkModules = []string{
		"drivers/virtio/virtio_ring.ko", "drivers/virtio/virtio.ko", "drivers/virtio/virtio_pci_legacy_dev.ko",
		"drivers/virtio/virtio_pci_modern_dev.ko", "drivers/virtio/virtio_pci.ko",
		"net/core/failover.ko", "drivers/net/net_failover.ko", "drivers/net/virtio_net.ko",
	}
	// Nothing needs them but tests that load them.
	tunModules = []string{"drivers/net/tun.ko", "drivers/block/nbd.ko"}
	// ntbModules are the bus of bridges, their drivers and the kernel's users of them. A machine loads those
	// that its test names.
	ntbModules = []string{
		"drivers/ntb/ntb.ko", "drivers/pci/switch/switchtec.ko",
		"drivers/ntb/hw/intel/ntb_hw_intel.ko", "drivers/ntb/hw/amd/ntb_hw_amd.ko", "drivers/ntb/hw/mscc/ntb_hw_switchtec.ko", "drivers/ntb/hw/epf/ntb_hw_epf.ko",
		"drivers/ntb/ntb_transport.ko", "drivers/net/ntb_netdev.ko",
		"drivers/ntb/test/ntb_tool.ko", "drivers/ntb/test/ntb_perf.ko", "drivers/ntb/test/ntb_pingpong.ko",
	}
)

// partOfVFIO is a module of its own in 6.1.
const partOfVFIO = "drivers/vfio/vfio_virqfd.ko"

// modulesOf returns the files of modules by their names in a disk. They are in the directory of a kernel's
// modules, unless that is built with them in it.
func modulesOf(t *testing.T, kernel string) map[string]string {
	t.Helper()
	builtin, err := os.ReadFile(filepath.Join(kernel, "modules.builtin"))
	require.NoError(t, err)
	modules := slices.Concat(vfioModules, networkModules, tunModules)
	if strings.HasPrefix(filepath.Base(kernel), "6.12.") {
		modules = slices.Concat(modules, ntbModules)
	}
	files := make(map[string]string)
	for _, m := range modules {
		file := filepath.Join(kernel, "kernel", m)
		if _, err := os.Stat(file); err == nil {
			files["modules/"+path.Base(m)] = file
		} else {
			other := os.Getenv(kernelsVariable) != ""
			require.True(t, m == partOfVFIO || other || bytes.Contains(builtin, []byte("kernel/"+m+"\n")), err)
		}
	}
	return files
}

// writeInitrd writes a RAM disk with files, which are given by their names in the disk. The system starts init.
func writeInitrd(t *testing.T, file string, files map[string]string) {
	t.Helper()
	a := &archive{}
	made := map[string]bool{".": true}
	var makeDir func(dir string)
	makeDir = func(dir string) {
		if !made[dir] {
			makeDir(path.Dir(dir))
			a.add(dir, 0o40755, nil)
			made[dir] = true
		}
	}
	for name, from := range files {
		content, err := os.ReadFile(from)
		require.NoError(t, err)
		makeDir(path.Dir(name))
		a.add(name, 0o100755, content)
	}
	a.add("TRAILER!!!", 0, nil)
	require.NoError(t, os.WriteFile(file, a.Bytes(), 0o600))
}
