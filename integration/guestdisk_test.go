//go:build linux

package integration

import (
	"bytes"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
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

// vfioModules are what VFIO in a machine needs, in the order in which they are loaded. Newer
// kernels have vfio_virqfd in vfio.
var vfioModules = []string{
	"virt/lib/irqbypass.ko", "drivers/vfio/vfio.ko", "drivers/vfio/vfio_virqfd.ko",
	"drivers/vfio/vfio_iommu_type1.ko", "drivers/vfio/pci/vfio-pci-core.ko", "drivers/vfio/pci/vfio-pci.ko",
}

const optionalModule = "drivers/vfio/vfio_virqfd.ko"

// networkModules are what a network device of virtio needs.
var networkModules = []string{
	"drivers/virtio/virtio_ring.ko", "drivers/virtio/virtio.ko", "drivers/virtio/virtio_pci_legacy_dev.ko",
	"drivers/virtio/virtio_pci_modern_dev.ko", "drivers/virtio/virtio_pci.ko",
	"net/core/failover.ko", "drivers/net/net_failover.ko", "drivers/net/virtio_net.ko",
}

// writeInitrd writes a RAM disk with modules from the directory of a kernel's modules, and with
// programs, whose files are given by their names in the disk. The system starts init.
func writeInitrd(t *testing.T, file, kernel string, programs map[string]string) {
	t.Helper()
	a := &archive{}
	content := func(name string) []byte {
		b, err := os.ReadFile(name)
		require.NoError(t, err)
		return b
	}
	a.add("modules", 0o40755, nil)
	for _, m := range slices.Concat(vfioModules, networkModules) {
		name := filepath.Join(kernel, "kernel", m)
		if _, err := os.Stat(name); err != nil && m == optionalModule {
			continue
		}
		a.add("modules/"+path.Base(m), 0o100644, content(name))
	}
	made := map[string]bool{".": true}
	var makeDir func(dir string)
	makeDir = func(dir string) {
		if !made[dir] {
			makeDir(path.Dir(dir))
			a.add(dir, 0o40755, nil)
			made[dir] = true
		}
	}
	for name, from := range programs {
		makeDir(path.Dir(name))
		a.add(name, 0o100755, content(from))
	}
	a.add("TRAILER!!!", 0, nil)
	require.NoError(t, os.WriteFile(file, a.Bytes(), 0o600))
}
