// Package ntb is for those who make devices; programs import packages sdp and shmem. It defines the
// contract of one PCIe non-transparent bridge: two hosts, each of which can write into a window of
// the other's memory.
//
// It is not a transport. It knows nothing of nodes, connections or messages. It defines the device
// interface and the store instructions on which everything above relies. The backends, and what
// goes around or tries them, are packages below this one:
//
//   - ntb/ntbshm: two processes of one machine, over shared memory;
//   - ntb/ntbmem: two ends in one process, on the Go heap, for tests;
//   - ntb/ntbfixed: what backends share whose memory is the same for ever;
//   - ntb/ntbkernel: the bridges that Linux drives, by a kernel module;
//   - internal/testing/ntbdma: a device around a device, with a DMA engine of software;
//   - internal/testing/ntbfault: a device around a device, which delays stores and delays,
//     drops or repeats doorbells;
//   - internal/testing/ntbtest: the conformance suite that every backend passes.
//
// # The picture
//
//	 this host                                       the peer
//	┌────────────────────┐                    ┌────────────────────┐
//	│ Inbound()  []byte  │◄───── stores ──────│ Outbound() Window  │
//	│ Outbound() Window  │────── stores ─────►│ Inbound()  []byte  │
//	│ Spad(i)            │◄───────────────────│ SetPeerSpad(i, v)  │
//	│ WaitDoorbell(bit)  │◄───────────────────│ RingDoorbell(bit)  │
//	└────────────────────┘                    └────────────────────┘
//
// A [Device] is one session. What outlasts it, the descriptors, registers and memory of this
// side's end of the bridge, is an [Attachment], which opens one session after the other.
//
// # The laws
//
// An old session reaches nobody. Once its link is down, what is stored through it
// vanishes, and its inbound window stays as it was, although the memory may be used again.
//
// An outbound window can only be written: [Window] has no method that reads. A read across a bridge
// stalls the CPU for about a microsecond. On a dead link it returns all ones.
//
// Stores made through one window arrive in the order of its Publish calls: everything stored before
// a Publish is visible to the peer before the published word is. Nothing else is promised. In
// particular, the stores between two Publish calls may arrive in any order and in parts.
//
// A published word leaves at once. Where the CPU gathers stores, in [WriteCombining] memory, a
// publish flushes before its word and after it. Ordinary memory is never flushed, but for
// non-temporal stores ([Window.Stream]), which flush behind themselves. Other stores leave with the
// next publish at the latest.
//
// Devices differ in what they can do. Some have DMA channels, memory that can be given back, or
// cheap reads of the peer's memory. A device's [Caps] state it. Every Device has all the methods.
// So a device around a device keeps the abilities of the inner one, and no type assertion asks for
// them. Likewise every [Sink] has all the methods. [Basic] makes one of a [BasicSink].
//
// A doorbell is a hint. It may be lost, late or repeated, and several may arrive as one. After a
// doorbell, a waiter checks memory.
//
// Words that the peer writes are read once, with [Load32] or [Load64], into a local, which is then
// checked.
package ntb
