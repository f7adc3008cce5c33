package ntbfixed

import "github.com/ntbnet/ntbnet/ntb"

// Memory is a part of a file that can be mapped: of a memory file, or a PCI function's
// region. Offset is a multiple of the system's page.
type Memory struct {
	FD     int
	Offset int64
	Len    int // bytes, a multiple of PageSize, at least two
}

// Config is what one side of a bridge is made of.
type Config struct {
	// Own is this side's memory, which the peer writes. Peer is the peer's, as this side
	// maps it: a header page and the window behind it. The files stay the caller's, and
	// open until the attachment is closed.
	Own, Peer Memory
	// Kind is how Peer is mapped.
	Kind ntb.MemoryKind
	// Interrupt interrupts the peer. It does not block, and interrupts may be lost or
	// arrive as one.
	Interrupt func()
	// Wait waits for an interrupt by the peer, or returns an error when there will be no
	// more. One goroutine calls it.
	Wait func() error
	// Stop makes Wait return an error. It is called once.
	Stop func()
}
