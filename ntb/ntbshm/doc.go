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
// A doorbell bit is an eventfd of the side that waits for it, and a word that
// changes with each ring. The cable is a
// connected Unix stream socket: each side sends one message with its files over
// it, and after that its only use is to end. When a process dies the kernel
// closes its end, and the other side's link is down at once. A process that is
// only stopped keeps its link.
//
// The files are sealed: neither side can shrink a window that the other has
// mapped. Everything that the peer sends is checked before it is used. What
// remains possible for a peer, which has the same user, is to spoil doorbells
// by changing the eventfds that both sides hold: it can lose rings, and, by
// making one blocking and filling it, keep RingDoorbell from returning.
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
