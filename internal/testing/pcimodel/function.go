package pcimodel

import "fmt"

// Function is the model of a PCI function: what a machine sees of one side of a bridge. Its methods are called
// by several goroutines.
type Function interface {
	// Header returns what config space says. It is always the same.
	Header() Header

	// Read reads 1, 2, 4 or 8 bytes from a BAR. The MSI-X table and its pending bits are not read by it.
	Read(bar int, offset uint64, size int) uint64

	// Write writes 1, 2, 4 or 8 bytes to a BAR, other than the MSI-X table.
	Write(bar int, offset uint64, size int, value uint64)

	// Attach says in which machine the function is, before that is started, and again after it was replaced.
	Attach(m Machine)

	// Reset says that the machine was reset, or has gone. When it returns, nothing that Memory
	// has returned before is used any more.
	Reset()
}

// Machine is what a function can do to the machine that it is in.
type Machine interface {
	// Raise sends the message of an MSI-X vector, now or when the vector is unmasked. If the
	// driver has not enabled MSI-X and bus mastering, the interrupt is lost.
	Raise(vector int)

	// Vector returns the message of an MSI-X vector, as the driver has set it, and whether MSI-X is enabled.
	Vector(vector int) (address uint64, data uint32, enabled bool)

	// Message writes data to an address that takes interrupts, for functions that do not leave MSI-X to Raise. What is
	// masked does not matter. It is lost if the function is not allowed to master the bus.
	Message(address uint64, data uint32)

	// Memory returns n bytes of the machine's memory from a physical address on, for stores and loads of the
	// peer. It returns nil if some of them are no RAM, or the function is not allowed to master the bus. The memory
	// is valid until the function's Reset returns.
	Memory(address uint64, n int) []byte

	// Base returns the address that the machine has given to a BAR.
	Base(bar int) uint64
}

// Header is what a function's config space says, beside what the machine writes there.
type Header struct {
	Vendor, Device       uint16
	SubVendor, SubDevice uint16
	Class                uint32 // as in 0x068000, a bridge of no particular kind
	Revision             uint8
	BARs                 [6]BAR
	MSIX                 MSIX
}

// BAR is a memory BAR of 32 bits.
type BAR struct {
	Size         uint32 // a power of two of at least 16, or 0 if there is none
	Prefetchable bool
}

// MSIX says where in a function's BARs the MSI-X table is.
type MSIX struct {
	Vectors        int // 0 if the function has no interrupts
	BAR            int
	Table, Pending uint32 // offsets in the BAR, multiples of 8
}

// Bridge is the model of a bridge between two machines.
type Bridge interface {
	Functions() [2]Function
	Counts() [2]Counts // by side, since it was made

	// Cut and Mend cut the cable between the sides, and mend it.
	Cut()
	Mend()
}

// Counts is what has happened at one side of a bridge.
type Counts struct {
	Stores, Bytes                 uint64     // this side's stores that have reached the peer's memory
	Loads                         uint64     // this side's loads from the peer's memory
	Lost                          uint64     // its stores, loads and doorbells that went nowhere
	RegisterReads, RegisterWrites uint64     // by this side, without doorbells
	Doorbells                     [64]uint64 // rung by this side, by bit
}

// String returns what there is, by words.
func (c Counts) String() string {
	text := fmt.Sprintf("%d stores of %d bytes, %d loads, %d lost, %d register reads and %d writes, doorbells",
		c.Stores, c.Bytes, c.Loads, c.Lost, c.RegisterReads, c.RegisterWrites)
	for bit, n := range c.Doorbells {
		if n > 0 {
			text += fmt.Sprintf(" %d:%d", bit, n)
		}
	}
	return text
}

// Sub returns what happened between before and c.
func (c Counts) Sub(before Counts) Counts {
	c.Stores -= before.Stores
	c.Bytes -= before.Bytes
	c.Loads -= before.Loads
	c.Lost -= before.Lost
	c.RegisterReads -= before.RegisterReads
	c.RegisterWrites -= before.RegisterWrites
	for i := range c.Doorbells {
		c.Doorbells[i] -= before.Doorbells[i]
	}
	return c
}
