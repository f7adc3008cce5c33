// Package ntbshm is a bridge between two processes of one machine, over shared
// memory. It is not a transport and not a queue: it is an ntb.Device, below
// everything that moves messages.
//
// Each side owns one memory file, its inbound window, which the other side maps
// to write:
//
//	byte 0      16 scratchpads of 4 bytes, written by the peer
//	byte 64     ring words, 4 bytes for each doorbell bit, written by the peer
//	byte 128    unused
//	byte 4096   the inbound window
//
// A doorbell bit is a word that changes with each ring, and a pair of Unix stream
// sockets, both shut in both directions. The side that waits keeps one end and sends
// the other one over the cable, and the peer rings by shutting that once more: the
// kernel has an event for each, and nothing is queued. The cable is a connected Unix
// stream socket: each side sends one message with its files over it, and after that
// its only use is to end. When a process dies the kernel closes its end, and the
// other side's link is down at once. A process that is only stopped keeps its link.
//
// The files are sealed: neither side can shrink a window that the other has
// mapped. Everything that the peer sends is checked before it is used. Whatever a
// peer does to its ends of the doorbells and the cable, no call here blocks for it:
// it can only ring for nothing, or not ring. Files of the peer's that are not used
// are closed by a goroutine of their own, since the peer may make that take long;
// Close and New wait for it for 1 s at the most.
//
// Linux on amd64 and arm64 only; elsewhere New returns ntb.ErrNotSupported.
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
