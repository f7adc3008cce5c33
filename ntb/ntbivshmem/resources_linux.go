//go:build linux && (amd64 || arm64)

package ntbivshmem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/ntbnet/ntbnet/ntb"
	"golang.org/x/sys/unix"
)

// sysfsDevices is where the system shows its PCI functions.
const sysfsDevices = "/sys/bus/pci/devices"

// The function's identity, and its BARs.
const (
	vendorID = 0x1af4
	deviceID = 0x1110

	registersBAR = 0
	vectorsBAR   = 1 // of ivshmem-doorbell only
	memoryBAR    = 2

	doorbellAt = 12 // of 32 bits: the client's number above the vector's
	// registersLen is how many bytes the registers take.
	registersLen = 256
)

// function is a function of this machine, by its files in sysfs.
type function struct {
	address, dir string
}

// findFunction finds an ivshmem function by its address.
func findFunction(address string) (*function, error) {
	if !IsAddress(address) {
		return nil, fmt.Errorf("ntbivshmem: %q is no PCI address, as 0000:00:03.0 is: %w", address, syscall.EINVAL)
	}
	f := &function{address: address, dir: filepath.Join(sysfsDevices, address)}
	config, err := os.ReadFile(filepath.Join(f.dir, "config"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("ntbivshmem: there is no PCI function %s (lspci -D lists what there is): %w", address, syscall.ENODEV)
	}
	if err != nil {
		return nil, fmt.Errorf("ntbivshmem: %w", err)
	}
	if len(config) < 4 {
		return nil, fmt.Errorf("ntbivshmem: PCI function %s shows %d bytes of its configuration: %w", address, len(config), syscall.ENODEV)
	}
	vendor, device := binary.LittleEndian.Uint16(config), binary.LittleEndian.Uint16(config[2:])
	if vendor != vendorID || device != deviceID {
		return nil, fmt.Errorf("ntbivshmem: PCI function %s is %04x:%04x, and not ivshmem's %04x:%04x: %w",
			address, vendor, device, vendorID, deviceID, syscall.ENODEV)
	}
	return f, nil
}

// open opens one of the function's files.
func (f *function) open(name string) (*os.File, int64, error) {
	file, err := os.OpenFile(filepath.Join(f.dir, name), os.O_RDWR|syscall.O_SYNC, 0)
	if err != nil {
		return nil, 0, fmt.Errorf("ntbivshmem: %w", err)
	}
	st, err := file.Stat()
	if err != nil {
		file.Close()
		return nil, 0, fmt.Errorf("ntbivshmem: %w", err)
	}
	return file, st.Size(), nil
}

// openMemory opens the memory BAR, to be mapped write-combining where the system can.
func (f *function) openMemory() (file *os.File, size int64, kind ntb.MemoryKind, err error) {
	kind = ntb.WriteCombining
	file, size, err = f.open(fmt.Sprintf("resource%d_wc", memoryBAR))
	if errors.Is(err, fs.ErrNotExist) {
		kind = ntb.Uncached
		file, size, err = f.open(fmt.Sprintf("resource%d", memoryBAR))
	}
	if err == nil && size == 0 {
		err = fmt.Errorf("ntbivshmem: PCI function %s has no memory: want ivshmem-doorbell or ivshmem-plain: %w", f.address, syscall.ENODEV)
	} else if err == nil {
		err = maps(file)
	}
	if err != nil {
		file.Close() // os.File's method takes nil, too
		return nil, 0, 0, err
	}
	return file, size, kind, nil
}

// errLockedDown is why the kernel maps no files of functions, as after Secure Boot.
var errLockedDown = errors.New("ntbivshmem: the kernel is locked down, and refuses the file of the function's memory")

// maps reports, by an error, whether the system maps a function's file.
func maps(file *os.File) error {
	page, err := unix.Mmap(int(file.Fd()), 0, os.Getpagesize(), unix.PROT_READ, unix.MAP_SHARED)
	switch {
	case err == nil:
		return unix.Munmap(page)
	case err == unix.EPERM:
		return fmt.Errorf("%w: map %s: %w", errLockedDown, file.Name(), err)
	}
	return fmt.Errorf("ntbivshmem: map %s: %w", file.Name(), err)
}

// plain reports whether the function has no interrupts, and no number at a server.
func (f *function) plain() bool {
	_, err := os.Stat(filepath.Join(f.dir, fmt.Sprintf("resource%d", vectorsBAR)))
	return errors.Is(err, fs.ErrNotExist)
}

// enable has the function answer for its BARs.
func (f *function) enable() error {
	name := filepath.Join(f.dir, "enable")
	on, err := os.ReadFile(name)
	if err == nil && strings.TrimSpace(string(on)) != "0" {
		return nil // each write of 1 counts, and nobody would take ours back
	}
	if err := os.WriteFile(name, []byte("1"), 0); err != nil {
		return fmt.Errorf("ntbivshmem: enable PCI function %s: %w", f.address, err)
	}
	return nil
}

// registers are the mapped registers of a function.
type registers struct {
	mem    []byte
	window ntb.Window
}

func mapRegisters(fd int, offset int64) (registers, error) {
	// A BAR of less than a page need not begin at one.
	page := int64(os.Getpagesize())
	before := int(offset & (page - 1))
	mem, err := unix.Mmap(fd, offset-int64(before), before+registersLen, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return registers{}, fmt.Errorf("ntbivshmem: map registers: %w", err)
	}
	all := ntb.MappedWindow(mem, ntb.Uncached)
	return registers{mem, all.Part(before, registersLen)}, nil
}

// ring interrupts a client by its first vector. What was published before is there by then.
func (r registers) ring(id uint32) {
	r.window.Publish32(doorbellAt, id<<16)
}

func (r registers) unmap() error { return unix.Munmap(r.mem) }

// position returns the client's own number.
func (r registers) position() uint32 { return ntb.Load32(r.mem, len(r.mem)-registersLen+positionAt) }
