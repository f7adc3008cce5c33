// Package ntbivshmem drives QEMU's inter-VM shared memory as a bridge. Both ends map one memory.
// A virtual machine has it as the BAR of an ivshmem function, a process of the host from the
// server that QEMU uses, or as a file.
//
// There are four kinds of attachments, and one driver, that of package ntbfixed, behind them:
//
//   - [AttachSocket], for a process of the host: it is a client of the server, as QEMU is.
//   - [AttachFunction], for a process in a virtual machine: by VFIO, with interrupts.
//   - [AttachResources], the same without VFIO: by the files of sysfs, without interrupts. It
//     looks for what the peer announces from time to time.
//   - [AttachFile], for processes that have a file in common, as containers do, or with a machine's
//     ivshmem-plain. It has no interrupts either.
//
// Any two of them can be the ends of a bridge, or two of a kind.
//
// # Places
//
// A memory is divided into areas: one for each ordered pair of places, of equal size. With two places
// that are the two halves. A [Place] says which places the ends of a bridge have. They follow from
// the plan of a fabric, and not from the numbers that a server gives its clients, which depend
// on who comes first.
//
// With more than two places, all who have the memory can read and change all of it. Each place can have a part for heaps,
// which no session uses: [OpenMemory] opens the memory for those who map it.
//
// # Trust
//
// The peer is a stranger: its Caps say so, and what it sends is copied before it is used. A memory
// that is made smaller ends the link.
package ntbivshmem
