// Package proxy forwards stream connections between TCP, Unix sockets and SDP:
// what is behind cmd/sdp-proxy.
//
// It is not an application proxy: it passes bytes and the ways in which a
// stream can end, and knows no protocol.
//
//	client ──► Forwarder: listens ──► relay ──► dials ──► target
//	           tcp:// unix:// sdp://            tcp:// unix:// sdp://
//
// One [Forwarder] serves one [Map]. Each connection is a relay with one copying
// goroutine per direction and nothing else: an idle connection costs no CPU, and
// holds no buffer. What comes from an SDP connection is written where it lies; a
// socket is read into a buffer that is borrowed while there is something to read;
// between two TCP connections the kernel moves the bytes.
//
// # Loops
//
// [Register] refuses a map whose connections come back to it. It follows each target to
// whichever Forwarder listens there, in this process or in another of the fabric: all
// leave their maps on the fabric's board. Addresses are compared as the system would
// find them: a name by all its addresses, a wildcard, addresses of this machine and of
// this network namespace, the file behind a path.
//
// # How a stream ends
//
//   - End of file on one side becomes CloseWrite on the other. The other
//     direction goes on; the connection ends when both have ended.
//   - An error on one side (a reset, say) becomes a reset of the other, so that
//     cut data never looks like a clean end. A Unix socket has no reset: its
//     peer sees an end of file, or ECONNRESET if it had sent bytes that were
//     not read.
//   - A target that cannot be dialled is a reset for the client. So is a client more
//     than Config.MaxConnections allows, at once and without a dial: in a loop through
//     programs that nobody here knows, that ends all its connections one by one.
package proxy
