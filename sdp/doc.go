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
// Network "sdp" is this transport only. It has one space of ports per fabric and host.
//
// Network "tcp" (and "tcp4", "tcp6") is package net's, and goes by this transport where it
// can. [Listen] makes the TCP listener that net.Listen makes. [Dial] reaches the server
// that net.Dial reaches: names, addresses, families, wildcards, dual stack, SO_REUSEPORT
// and network namespaces count as they do there. If that server's listener is of this
// package and of the same fabric, the connection is made by SDP, else by TCP. Three
// things are beside that:
//
//   - The names of nodes, below, are the fabric's.
//   - Where no TCP socket listens, a listener of network "sdp" on that port of this host
//     is reached.
//   - A listener of network "tcp" is reached by network "sdp" too, unless another
//     listener had the port there before.
//
// The kernel says which socket a connection would reach: Linux, by NETLINK_SOCK_DIAG.
// Where that is missing or forbidden, network "tcp" is TCP, which is logged once. It does
// not say what translates an address on its way: rules of netfilter (DNAT, REDIRECT,
// REJECT) and eBPF programs at connect, as service meshes have them, are not seen for
// addresses of this machine, while sk_lookup programs are. Use package net where those
// matter. In a group of SO_REUSEPORT that has plain sockets as well, each is reached, but
// not evenly, and programs that choose among a group do not count.
//
// A connection by SDP is a *[Conn], one by TCP a *[net.TCPConn]:
//
//	_, sdp := c.(*sdp.Conn)
//
// LocalAddr and RemoteAddr are a *[net.TCPAddr] by either way. Ports of dialling ends
// tell living connections apart, and are none that the kernel gives to TCP. The name of
// a node is the zone of a link-local address, as in [fe80::3%node3]:8080, which Dial
// takes. How many connections took which way, and why, is counted in [Host.Stats].
//
// Other networks, such as "unix" and "udp", are passed to package net.
//
// # Programs that look behind net.Conn
//
// What code meets that asserts types of package net, or asks for a descriptor:
//
//	code                              meets                     use instead
//	c.(*net.TCPConn)                  false, by SDP             an interface with the methods that are needed
//	c.(*net.TCPConn).SetNoDelay etc.  the assertion panics      interface{ CloseWrite() error } and so on
//	ln.(*net.TCPListener)             false                     *TCPListener, or an interface
//	ln.(*net.TCPListener).AcceptTCP   the assertion panics      Accept
//	ln.(…).SetDeadline                works: *TCPListener
//	ln.(…).File, SyscallConn          work: the TCP socket      to hand over, see Adopt
//	c.(syscall.Conn)                  works: readable at the    net, to poll for data or to pass it on
//	                                  end of the stream
//	c.File                            missing, by SDP           net
//	a.(*net.TCPAddr)                  works, network "tcp"
//	a.Network() == "sdp"              false, network "tcp"      c.(*sdp.Conn)
//	errors.As(err, &opError)          works: Net is "tcp"
//	net.Dialer.Control, LocalAddr     TCP is taken              Dialer.TCP, which has them
//	httptrace's hooks                 work
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
// the default Host is TCP there, and its names are looked up by package net, whose resolver
// belongs to the bubble that asks it first: use IP addresses. A bubble is recognized until
// its clock, which begins at 2000, comes to 2020; and a connection that was made outside is
// not refused: a Read of it that has to wait keeps
// the clock from going on, as one of TCP does.
//
// # Errors
//
// As with net, every error but io.EOF is a *net.OpError. errors.Is finds its
// cause: net.ErrClosed, os.ErrDeadlineExceeded, syscall.ECONNREFUSED,
// ECONNRESET, EPIPE, EADDRINUSE, EHOSTUNREACH, or ENOBUFS when a window has no
// memory for another connection.
package sdp
