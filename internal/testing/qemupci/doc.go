// Package qemupci puts models of PCI functions into machines of QEMU 7.2, for tests. It speaks the protocol
// of QEMU's device x-pci-proxy-dev, which hands accesses to config space and BARs to another process.
//
// A [Machine] has the sockets of some functions, and the arguments with which QEMU has them. There is one more
// socket, of QEMU's qtest protocol: the proxy device has no MSI-X, so the message of an interrupt is written
// to the interrupt controller's address from outside. That works only where interrupts are not remapped. The
// machine's memory is a file that this process maps, for what a function stores there. If the machine has QEMU's
// intel-iommu, each such address goes through its tables first, which are in the machine's memory.
//
// Each access is a round trip between processes. Config space has 256 bytes, as that of
// a device of conventional PCI, and BARs have 32 bits.
package qemupci
