// Package ntbshm is a bridge between two processes of one machine, over shared
// memory. It implements ntb.Device. It is not a transport and not a queue; those are
// layers above.
//
// Each side owns one memory file, its inbound window, which the other side maps
// to write:
//
//	byte 0      16 scratchpads of 4 bytes, written by the peer
//	byte 64     ring words, 4 bytes for each doorbell bit, written by the peer
//	byte 128    unused
//	byte 4096   the inbound window
//
// A doorbell bit consists of a word that changes with each ring, and a pair of Unix
// stream sockets, both shut down in both directions. The side that waits keeps one
// end and sends the other one over the cable. The peer rings by shutting its end
// down once more. The kernel delivers an event for each ring, and nothing is queued.
//
// The cable is a connected Unix stream socket. Each side sends one message with its
// files over it. After that it serves only to notice the end. When a process dies,
// the kernel closes its end, and the other side's link is down at once. A process
// that is only stopped keeps its link.
//
// The files are sealed: neither side can shrink a window that the other has mapped.
// Everything that the peer sends is checked before it is used. Whatever a peer does
// to its ends of the doorbells and the cable, it cannot make a call here block. It
// can only ring without cause, or not ring. Close and New do not wait for files of
// the peer to be closed, since the peer may make that take long.
//
// It supports Linux on amd64 and arm64. Elsewhere New returns ntb.ErrNotSupported.
//
//	a, err := ntbshm.New(cable, ntbshm.Options{Window: 1 << 20})
//	if err != nil {
//		return err
//	}
//	defer a.Close()
//	w := a.Outbound()
//	w.Write(64, payload)
//	w.Publish64(0, uint64(len(payload)))
//	a.RingDoorbell(0)
package ntbshm
