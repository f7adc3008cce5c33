//go:build linux

package vfio

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Where the system shows PCI functions and IOMMU groups.
const (
	sysfsDevices = "/sys/bus/pci/devices"
	groups       = "/dev/vfio"
)

const (
	configRegion  = 7
	msixIndex     = 2
	commandAt     = 4 // in the configuration, of 16 bits
	commandMemory = 1 << 1
	commandMaster = 1 << 2
)

// Region is a part of a function: a BAR, whose index is its number, or another of vfio.h.
type Region struct {
	Offset int64 // in the descriptor of the device
	Size   int64 // bytes; 0 if the function has no such region
	Maps   bool  // it can be mapped
}

// Device is an open PCI function. It is for one driver of one process.
type Device struct {
	container, group, device int
	lines                    []*Interrupt
}

// Open opens a function that is bound to vfio-pci, and lets it access memory and send interrupts.
func Open(address string) (_ *Device, err error) {
	dir := filepath.Join(sysfsDevices, address)
	if _, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("vfio: there is no PCI function %s (lspci -D lists what there is): %w", address, syscall.ENODEV)
	}
	number, err := groupOf(address, dir)
	if err != nil {
		return nil, err
	}
	d := &Device{container: -1, group: -1, device: -1}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if d.container, err = unix.Open(filepath.Join(groups, "vfio"), unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		return nil, fmt.Errorf("vfio: open /dev/vfio/vfio (modprobe vfio-pci makes it): %w", err)
	}
	if v, err := ioctl(d.container, getAPIVersion, 0); err != nil || v != api {
		return nil, fmt.Errorf("vfio: the kernel's VFIO has version %d, this program wants %d: %w", v, api, errors.Join(err, syscall.ENOTSUP))
	}
	if has, err := ioctl(d.container, checkExtension, type1v2); err != nil || has == 0 {
		return nil, fmt.Errorf("vfio: no type 1 IOMMU (modprobe vfio_iommu_type1): %w", errors.Join(err, syscall.ENOTSUP))
	}
	if err := d.openGroup(address, number); err != nil {
		return nil, err
	}
	if d.device, err = deviceOf(d.group, address); err != nil {
		return nil, fmt.Errorf("vfio: open PCI function %s: %w", address, err)
	}
	unix.CloseOnExec(d.device)
	return d, d.enable(address)
}

// groupOf returns the number of a function's IOMMU group.
func groupOf(address, dir string) (string, error) {
	link, err := os.Readlink(filepath.Join(dir, "iommu_group"))
	if errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("vfio: PCI function %s has no IOMMU group: the machine needs an IOMMU that is on "+
			"(intel_iommu=on for the kernel; -device intel-iommu,intremap=on for QEMU), or use its sysfs files instead: %w", address, syscall.ENOTSUP)
	}
	if err != nil {
		return "", fmt.Errorf("vfio: %w", err)
	}
	driver, err := os.Readlink(filepath.Join(dir, "driver"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("vfio: %w", err)
	}
	if name := filepath.Base(driver); name != "vfio-pci" {
		has := "no driver"
		if driver != "" {
			has = "the driver " + name
		}
		return "", fmt.Errorf("vfio: PCI function %s has %s, want vfio-pci: "+
			"modprobe vfio-pci; echo vfio-pci >%s/driver_override; echo %s >/sys/bus/pci/drivers_probe: %w", address, has, dir, address, syscall.ENODEV)
	}
	return filepath.Base(link), nil
}

// openGroup opens the group and puts it into the container.
func (d *Device) openGroup(address, number string) (err error) {
	if d.group, err = unix.Open(filepath.Join(groups, number), unix.O_RDWR|unix.O_CLOEXEC, 0); err != nil {
		if err == unix.EBUSY {
			return fmt.Errorf("vfio: another process uses PCI function %s, or its IOMMU group %s: %w", address, number, err)
		}
		return fmt.Errorf("vfio: open /dev/vfio/%s: %w", number, err)
	}
	var status groupStatus
	if err := status.get(d.group); err != nil {
		return fmt.Errorf("vfio: status of IOMMU group %s: %w", number, err)
	}
	if status.flags&groupViable == 0 {
		return fmt.Errorf("vfio: IOMMU group %s of PCI function %s has functions with other drivers: bind all in /sys/kernel/iommu_groups/%s/devices to vfio-pci: %w",
			number, address, number, syscall.EBUSY)
	}
	if err := fileOf(d.group, setContainer, d.container); err != nil {
		return fmt.Errorf("vfio: put IOMMU group %s into a container: %w", number, err)
	}
	if _, err := ioctl(d.container, setIOMMU, type1v2); err != nil {
		if err == unix.EPERM {
			return fmt.Errorf("vfio: the IOMMU does not remap interrupts (intremap=on for QEMU's intel-iommu): %w", err)
		}
		return fmt.Errorf("vfio: set up the IOMMU: %w", err)
	}
	return nil
}

// enable turns memory space and bus master on. The kernel turns the latter off when a function
// is opened, and without it interrupts are lost.
func (d *Device) enable(address string) error {
	config, err := d.Region(configRegion)
	if err != nil {
		return err
	}
	var b [2]byte
	if _, err := unix.Pread(d.device, b[:], config.Offset+commandAt); err != nil {
		return fmt.Errorf("vfio: read configuration of PCI function %s: %w", address, err)
	}
	want := binary.LittleEndian.Uint16(b[:]) | commandMemory | commandMaster
	binary.LittleEndian.PutUint16(b[:], want)
	if _, err := unix.Pwrite(d.device, b[:], config.Offset+commandAt); err != nil {
		return fmt.Errorf("vfio: write configuration of PCI function %s: %w", address, err)
	}
	if _, err := unix.Pread(d.device, b[:], config.Offset+commandAt); err != nil {
		return fmt.Errorf("vfio: read configuration of PCI function %s: %w", address, err)
	}
	if binary.LittleEndian.Uint16(b[:])&commandMaster == 0 {
		return fmt.Errorf("vfio: PCI function %s stays no bus master, and cannot interrupt: %w", address, syscall.EIO)
	}
	return nil
}

// FD returns the descriptor of the device, for mappings of regions. It stays the device's.
func (d *Device) FD() int { return d.device }

// Region returns where a region is.
func (d *Device) Region(index int) (Region, error) {
	var info regionInfo
	if err := info.get(d.device, index); err != nil {
		return Region{}, fmt.Errorf("vfio: region %d: %w", index, err)
	}
	return Region{Offset: int64(info.offset), Size: int64(info.bytes), Maps: info.flags&regionMaps != 0}, nil
}

// Interrupt is one vector of a function.
type Interrupt struct {
	file *os.File
}

// Interrupts returns the function's MSI-X vectors, of which there may be any number, but no more than 64. It is
// called once: the kernel takes them all at the same time.
func (d *Device) Interrupts() ([]*Interrupt, error) {
	var info interruptInfo
	if err := info.get(d.device, msixIndex); err != nil {
		return nil, fmt.Errorf("vfio: interrupts: %w", err)
	}
	n := min(int(info.count), maxInterrupts)
	if n == 0 || info.flags&interruptEventFD == 0 {
		return nil, fmt.Errorf("vfio: the function has no MSI-X interrupts: %w", syscall.ENOTSUP)
	}
	var set interruptSet
	for i := range n {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return nil, fmt.Errorf("vfio: make eventfd: %w", err)
		}
		set.files[i] = int32(fd)
		d.lines = append(d.lines, &Interrupt{os.NewFile(uintptr(fd), "eventfd "+strconv.Itoa(i))})
	}
	if err := set.set(d.device, msixIndex, n); err != nil {
		return nil, fmt.Errorf("vfio: set up %d interrupts: %w", n, err)
	}
	return d.lines, nil
}

// Wait waits for the interrupt. Several may come as one. It fails after Close of the device.
func (i *Interrupt) Wait() error {
	var count [8]byte
	_, err := i.file.Read(count[:])
	return err
}

// Close ends interrupts, and closes the function. Its mappings stay until they are unmapped.
func (d *Device) Close() error {
	var err error
	if len(d.lines) > 0 {
		var set interruptSet
		err = set.set(d.device, msixIndex, 0)
		for _, l := range d.lines {
			err = errors.Join(err, l.file.Close())
		}
		d.lines = nil
	}
	for _, fd := range []*int{&d.device, &d.group, &d.container} {
		if *fd >= 0 {
			err = errors.Join(err, unix.Close(*fd))
			*fd = -1
		}
	}
	return err
}
