// Package ntbshm is a bridge between two processes of one machine, over shared
// memory. It implements ntb.Device. It is not a transport and not a queue; those are
// layers above.
//
// Each side owns one memory file, its inbound window, which the other side maps to write. Files and
// the ringing ends of doorbells are exchanged over a cable, a connected Unix stream socket. After
// that the cable serves only to notice that the peer has closed. When a process dies, the kernel closes it, and the
// other side's link is down at once. A process that is only stopped keeps its link.
// docs/protocol/link.md has the layouts, and how a doorbell rings.
//
// The files are sealed: neither side can shrink a window that the other has mapped.
// Everything that the peer sends is checked before it is used. Whatever a peer does
// to its ends of the doorbells and the cable, it cannot make a call here block. It
// can only ring without cause, or not ring. Close and New do not wait for files of
// the peer to be closed, since the peer may make that take long.
//
// It supports Linux on amd64 and arm64. On others New returns ntb.ErrNotSupported.
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
