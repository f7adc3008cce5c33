// Package proxy forwards stream connections between TCP, Unix sockets and SDP. It does
// the work of cmd/sdp-proxy.
//
// It is not an application proxy. It passes on bytes and the ways in which a stream can
// end, and knows no protocol.
//
//	client ──► Forwarder: listens ──► relay ──► dials ──► target
//	           tcp:// unix:// sdp://            tcp:// unix:// sdp://
//
// A [Server] serves the maps of a [Config], which comes from a file or from flags, and may change to those of
// another one. One [Forwarder] serves one [Map]. Its parts have one job each: a door accepts, connections are limited
// and counted, targets are known to be up or down, a dialer dials them, and a journal is the log. Each connection is a relay with one copying goroutine per
// direction and nothing else. An idle connection holds no buffer. It uses no CPU, but for a look a second if
// it is between TCP and a Unix socket, or one direction has ended. Data of an SDP connection is written from
// where it lies. A Write of several parts is read, and passed on, whole. A socket is read into a buffer that
// is borrowed while there is something to read. Between two TCP connections the kernel moves the bytes.
//
// # Loops
//
// A [Server] refuses a map whose connections come back to it. It follows each target to
// the Forwarder of its own that listens there. Addresses are compared as the system
// would find them: names by all their addresses, wildcards, addresses of this machine, the
// file of a path.
//
// # How a stream ends
//
//   - End of file on one side becomes CloseWrite on the other. The other direction goes
//     on. The connection ends when both directions have ended.
//   - An error on one side, such as a reset, becomes a reset of the other. So truncated
//     data never appears as a clean end. A Unix socket has no reset: its peer sees an
//     end of file, or ECONNRESET if it had sent bytes that were not read.
//   - While one side takes nothing, the other one is not read. A reset of that is noticed
//     nevertheless, on TCP by Linux alone. It is passed on a second later, so that earlier
//     data has time to arrive.
//   - A header of the PROXY protocol is read from the bare connection, and nothing behind it. So the kernel moves the
//     bytes that follow, as without a header.
//   - A target that cannot be dialled is a reset for the client. So is a client beyond
//     Map.MaxConnections, at once and without a dial. In a loop through other
//     processes, that ends all its connections one by one.
package proxy
