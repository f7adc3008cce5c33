// Package ivshmem speaks the protocol between a server of inter-VM shared memory and its
// clients, as QEMU's documentation specifies it (docs/specs/ivshmem-spec.rst). A client is a
// virtual machine with an ivshmem-doorbell function, or a process of the host.
//
// A [Server] hands out one memory and, for each client, its interrupts: eventfds that the others
// write. A [Client] is what a process of the host needs of that. Neither looks at what lies in
// the memory.
//
// All messages go from the server to a client: eight bytes, little-endian, and perhaps a
// descriptor.
//
//	0                   the version of the protocol
//	ID                  the client's own number
//	-1, descriptor      the memory
//	ID, descriptor      an interrupt of that client, once for each of its vectors, in order:
//	                    first those of the others, last the client's own
//	ID                  that client has gone
//
// A server trusts its clients with the memory and with each other's interrupts, and with nothing
// else. A client that does not read, or that sends something, is dropped. A client trusts the
// server to hand out memory that does not shrink.
package ivshmem
