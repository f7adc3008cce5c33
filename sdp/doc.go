// Package sdp is a net.Conn transport over PCIe non-transparent bridges, and
// over shared memory between the processes of one machine, where it needs no
// set-up at all.
//
// It is a Sockets Direct Protocol of its own, not the wire format of InfiniBand's
// SDP, and not a message protocol: a connection is a stream of bytes, as with
// TCP.
//
//	ln, err := sdp.Listen("sdp", ":8080")
//	c, err := sdp.Dial("sdp", "localhost:8080")
//
// Servers that use package net replace net.Listen and net.Dial, and change
// nothing else.
//
// # Networks
//
// Network "sdp" is this transport only. Network "tcp" (and "tcp4", "tcp6") is
// this transport where it can be, and TCP otherwise: [Listen] serves both on one
// port; [Dial] takes SDP if the host is this machine and something there listens
// by SDP on that port. Which one a connection took shows in
// RemoteAddr().Network(), and is counted, by reason, in [Host.Stats].
//
// # Hosts
//
// A [Host] is this process' membership in a fabric. The package's functions use
// a default one, which is opened by its first use and released shortly after its
// last listener and connection are closed. The environment variable SDP_FABRIC
// names its fabric; without it, the processes of one user on one machine share
// one.
//
// # Nodes
//
// A fabric may have several hosts with bridges between them, in a ring, a line, or
// each with each. At present the bridges are shared memory, so all hosts are
// processes of one machine:
//
//	SDP_FABRIC='ring:lab?node=1&nodes=5' server
//	SDP_FABRIC='ring:lab?node=2&nodes=5' client
//
// Nodes are numbered from 1, in the order of their cables; there is no node 0. They
// start in any order, and may end and start again. node3:8080, or 3:8080, is port
// 8080 of node 3; localhost and a node's own name are the node itself. Each node
// has ports of its own. A dial to a node that does not run waits until it does, or
// the deadline has come, 127 s unless given; then it fails with EHOSTUNREACH beside
// the timeout. A name beyond the last node is EHOSTUNREACH at once; a member that has
// met no owner yet waits until it knows.
//
// Several processes of a node share its links: one owns them, by nodes=N, the others
// leave that out. They share the node's ports, too.
//
//	SDP_FABRIC='ring:lab?node=1&nodes=5' sdp-proxy --own
//	SDP_FABRIC='ring:lab?node=1' server
//
// # Connections
//
// A [Conn] behaves as a *net.TCPConn on Linux does, to the order of its errors; the few
// differences, with their reasons, are in the section "Differences from net" of
// ARCHITECTURE.md. What a program has dropped without Close is closed by the garbage
// collector, except in a bubble of testing/synctest.
//
// # Tests with virtual time
//
// In a bubble of testing/synctest, a fabric mem:NAME works, and its waits do not hold up the
// bubble's clock. [Open] it and close the [Host] in the bubble, since what is made outside
// cannot be used there: the default Host stays open for 250 ms after its last use, which a
// bubble that has ended never comes to. A fabric of shared memory cannot work there, since
// a wait for another process keeps the clock from going on: Open, Dial and Listen fail with
// [errors.ErrUnsupported], as they do with a Host that was opened outside. Network "tcp" of
// the default Host is TCP there. A bubble is recognized until its clock, which begins at 2000, comes to 2020; and
// a connection that was made outside is not refused: a Read of it that has to wait keeps
// the clock from going on, as one of TCP does.
//
// # Errors
//
// As with net, every error but io.EOF is a *net.OpError. errors.Is finds its
// cause: net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNREFUSED,
// ECONNRESET, EPIPE, EADDRINUSE, EHOSTUNREACH, or ENOBUFS when a window has no
// memory for another connection.
package sdp
