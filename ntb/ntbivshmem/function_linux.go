//go:build linux && (amd64 || arm64)

package ntbivshmem

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"syscall"

	"github.com/ntbnet/ntbnet/internal/vfio"
	"github.com/ntbnet/ntbnet/ntb"
	"github.com/ntbnet/ntbnet/ntb/ntbfixed"
	"golang.org/x/sys/unix"
)

// positionAt is the register with the client's own number, of 32 bits.
const positionAt = 8

// AttachFunction returns the end of a process in a virtual machine, at the ivshmem-doorbell
// function of an address such as 0000:00:03.0, by VFIO. Its memory is mapped by its file in sysfs; where the
// kernel is locked down and refuses that, by VFIO, which is slower.
func AttachFunction(address string, place Place) (_ ntb.Attachment, err error) {
	f, err := findFunction(address)
	if err != nil {
		return nil, err
	}
	// The kernel refuses the write-combining file once VFIO has mapped the BAR, so
	// that is done only where it refuses the file anyway.
	memory, size, kind, err := f.openMemory()
	locked := errors.Is(err, errLockedDown)
	if err != nil && !locked {
		return nil, err
	}
	defer func() {
		if err != nil {
			memory.Close()
		}
	}()
	d, err := vfio.Open(address)
	if err != nil {
		return nil, fmt.Errorf("ntbivshmem: %w", err)
	}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	from := int64(0)
	if locked {
		if memory, from, size, err = memoryOf(d); err != nil {
			return nil, err
		}
		kind = ntb.Uncached
		slog.Warn("ntbivshmem: the kernel is locked down, so VFIO maps the memory, uncached and thus slower", "function", address)
	}
	bar, err := d.Region(registersBAR)
	if err != nil {
		return nil, fmt.Errorf("ntbivshmem: %w", err)
	}
	if bar.Size < registersLen || !bar.Maps {
		return nil, fmt.Errorf("ntbivshmem: BAR 0 of %s has %d bytes, and cannot be mapped: %w", address, bar.Size, syscall.ENOTSUP)
	}
	regs, err := mapRegisters(d.FD(), bar.Offset)
	if err != nil {
		return nil, err
	}
	lines, err := d.Interrupts()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ntbivshmem: %s must be an ivshmem-doorbell: %w", address, err), regs.unmap())
	}
	end := functionEnd{
		name: address, place: place, memory: memory, from: from, size: size, kind: kind, regs: regs,
		wait: lines[0].Wait, stop: d.Close,
	}
	return end.attach()
}

// memoryOf returns where VFIO has the memory of a function, in a descriptor of the caller's own.
func memoryOf(d *vfio.Device) (file *os.File, from, size int64, err error) {
	bar, err := d.Region(memoryBAR)
	if err != nil {
		return nil, 0, 0, fmt.Errorf("ntbivshmem: %w", err)
	}
	if bar.Size == 0 || !bar.Maps {
		return nil, 0, 0, fmt.Errorf("ntbivshmem: BAR %d has %d bytes, and cannot be mapped: %w", memoryBAR, bar.Size, syscall.ENOTSUP)
	}
	fd, err := unix.FcntlInt(uintptr(d.FD()), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, 0, 0, fmt.Errorf("ntbivshmem: %w", err)
	}
	return os.NewFile(uintptr(fd), "vfio"), bar.Offset, bar.Size, nil
}

// AttachResources is AttachFunction by the function's files in sysfs. It needs no VFIO and
// no IOMMU, and takes no interrupts: it looks for what the peer announces from time to time. The function may be
// an ivshmem-plain, which cannot interrupt the peer either, so that the peer looks as well.
func AttachResources(address string, place Place) (_ ntb.Attachment, err error) {
	f, err := findFunction(address)
	if err != nil {
		return nil, err
	}
	if err := f.enable(); err != nil {
		return nil, taken(err)
	}
	memory, size, kind, err := f.openMemory()
	if errors.Is(err, errLockedDown) {
		return nil, fmt.Errorf("%w (VFIO works: bind the function to vfio-pci, and leave \",poll\" out)", err)
	}
	if err != nil {
		return nil, taken(err)
	}
	end := functionEnd{name: address, place: place, memory: memory, size: size, kind: kind}
	if f.plain() {
		return end.attach()
	}
	bar, _, err := f.open(fmt.Sprintf("resource%d", registersBAR))
	if err != nil {
		return nil, errors.Join(err, memory.Close())
	}
	defer bar.Close()
	if end.regs, err = mapRegisters(int(bar.Fd()), 0); err != nil {
		return nil, errors.Join(taken(err), memory.Close())
	}
	return end.attach()
}

// taken adds what to do if a driver has the function, which the kernel reports by these errors.
func taken(err error) error {
	if errors.Is(err, syscall.EBUSY) || errors.Is(err, syscall.EINVAL) {
		return fmt.Errorf("%w (a function that is bound to vfio-pci is used without \",poll\"; else unbind it first)", err)
	}
	return err
}

// functionEnd is what an attachment of a function is made of. It owns all of it.
type functionEnd struct {
	name   string
	place  Place
	memory *os.File
	from   int64 // where the memory begins in its file
	size   int64
	kind   ntb.MemoryKind
	regs   registers    // none of an ivshmem-plain
	wait   func() error // nil if there are no interrupts
	stop   func() error // nil if wait is
}

func (e *functionEnd) attach() (ntb.Attachment, error) {
	config := ntbfixed.Config{
		Kind: e.kind, Backend: "ivshmem", Untrusted: true, RemoteCPU: true, Revocable: true,
		Stop: func() { e.close() },
	}
	if e.regs.mem != nil {
		config.ID, config.Named, config.Interrupt = e.regs.position(), true, func(id uint32, _ int) { e.regs.ring(id) }
	}
	if e.wait != nil {
		config.Wait = []func() error{e.wait}
	}
	var a ntb.Attachment
	err := e.place.check()
	if err == nil {
		err = e.place.memories(&config, int(e.memory.Fd()), e.from, e.size)
	}
	if err == nil {
		a, err = ntbfixed.Attach(config)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ntbivshmem: memory of %d bytes: %w", e.size, err), e.close())
	}
	slog.Info("ntbivshmem: function attached", "function", e.name, "bytes", e.size, "memory", e.kind, "interrupts", e.wait != nil)
	return a, nil
}

func (e *functionEnd) close() error {
	var err error
	if e.stop != nil {
		err = e.stop()
	}
	if e.regs.mem != nil {
		err = errors.Join(err, e.regs.unmap())
	}
	return errors.Join(err, e.memory.Close())
}
