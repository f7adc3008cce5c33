// Package vfio opens PCI functions for drivers in user space, by the kernel's VFIO. It knows no
// function in particular: a driver is given the regions, to map or to read, and the interrupts
// as eventfds.
//
//	d, err := vfio.Open("0000:00:03.0")
//	r, err := d.Region(2)
//	mem, err := unix.Mmap(d.FD(), r.Offset, int(r.Size), …)
//	lines, err := d.Interrupts()
//	err = lines[0].Wait()
//
// The function must be bound to the driver vfio-pci, and an IOMMU must translate what it reads and
// writes. [Open] says what is missing, with the commands that mend it.
//
// A BAR that is to be mapped write-combining is mapped by its file resourceN_wc in sysfs, before
// it is mapped here: the kernel refuses the other order.
package vfio
