// Package sdp provides net.Conn and net.Listener over shared memory between the processes of one
// machine, without any set-up, and over PCIe non-transparent bridges between machines: see
// docs/bridges.md.
//
// It implements a Sockets Direct Protocol of its own, not the wire format of InfiniBand's SDP. It
// is not a message protocol: a connection is a stream of bytes, as with TCP.
//
//	ln, err := sdp.Listen("sdp", ":8080")
//	c, err := sdp.Dial("sdp", "localhost:8080")
//
// Programs that use package net replace net.Listen and net.Dial, and change nothing else.
//
// # Networks
//
// Network "sdp" is this transport only. It has one space of ports per fabric and host.
//
// Network "tcp" (and "tcp4", "tcp6") is that of package net, and uses this transport where it can.
// [Listen] makes the TCP listener that net.Listen makes. [Dial] reaches the server that net.Dial
// reaches: names, addresses, families, wildcards, dual stack, SO_REUSEPORT and network namespaces
// count as they do there. If that server's listener is of this package and of the same fabric, the
// connection is made by SDP, otherwise by TCP. There are four additions:
//
//   - The names of nodes, below, are the fabric's.
//   - Where no TCP socket listens, a listener of network "sdp" on that port of this host is
//     reached.
//   - An address that option hostI gives to another node is reached by SDP if the TCP socket there, by that
//     node's kernel, is a listener's of this package and fabric. Otherwise, also if the node does not answer
//     within a second, it is reached by TCP: see docs/fabrics.md.
//   - A listener of network "tcp" is reached by network "sdp" too, unless another listener had the
//     port there before.
//
// The kernel reports which socket a connection would reach. Where it does not, where the system has no
// fabrics, and while the process lacks what it takes to join one, network "tcp" is TCP, which is logged
// once. A fabric that is refused is an error, on every network. What translates an address on its way, as
// rules of netfilter do, is not seen: see docs/replacing-net.md.
//
// A connection by SDP is a *[Conn], one by TCP a *[net.TCPConn]:
//
//	_, sdp := c.(*sdp.Conn)
//
// LocalAddr and RemoteAddr return a *[net.TCPAddr] in either case. Ports of dialling endpoints
// distinguish living connections. They are not ports that the kernel gives to TCP. The name of a
// node is the zone of a link-local address, as in [fe80::3%node3]:8080, which Dial accepts.
// [Fabric.Stats] counts how many connections used which transport, and why.
//
// Other networks, such as "unix" and "udp", are passed to package net.
//
// # Programs that look behind net.Conn
//
// Some code asserts types of package net, or asks for a descriptor. It meets this:
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
//	(*net.Buffers).WriteTo(c)         a Write for each buffer   c.WriteBuffers
//	a.(*net.TCPAddr)                  works, network "tcp"
//	a.Network() == "sdp"              false, network "tcp"      c.(*sdp.Conn)
//	errors.As(err, &opError)          works: Net is "tcp"
//	errors.As(err, &syscallError)     works
//	net.Dialer.Control, LocalAddr     TCP is taken              Dialer.TCP, which has them
//	httptrace's hooks                 work
//
// # Fabrics
//
// A [Fabric] is a fabric that this process has joined. The package's functions use a default
// Fabric. It is opened by its first use and released shortly after its last listener and connection are
// closed. The environment variable SDP_FABRIC names its fabric. Without it, the file /etc/ntbnet/fabric
// does, for all programs of the machine. Where there is none, the processes of one user on one machine share one.
//
// # Nodes
//
// A fabric may have several hosts with bridges between them, in a ring, a line, or each with each.
// Unless a program supplies bridges, as below, they are shared memory, and all hosts are processes
// of one machine:
//
//	SDP_FABRIC='ring:lab?node=1&nodes=5' server
//	SDP_FABRIC='ring:lab?node=2&nodes=5' client
//
// Nodes are numbered from 1, in the order of their cables. There is no node 0. They start in any
// order, and may end and start again. node3:8080, or 3:8080, is port 8080 of node 3. localhost and
// a node's own name are the node itself. Each node has ports of its own. A dial to a node that does
// not run waits until it does, or until its deadline, 127 s by default. Then it fails with
// EHOSTUNREACH in addition to the timeout. A name beyond the last node is EHOSTUNREACH at once. A
// member that has met no owner yet waits until it knows the number of nodes.
//
// Several processes of a node share its links and its ports. One owns the links: see [Open].
// [Fabric.Nodes] returns the nodes, and [Fabric.Watch] yields each node that comes, goes, or changes its
// route.
//
// # Users
//
// A fabric belongs to a user, unless it is a directory that a group shares: see [Open]. Between
// processes of one machine each side knows the other's user, from the kernel: [Conn.Peer]. A
// listener chooses whom it accepts by ListenConfig.Allow. A dial that it refuses is EACCES, and
// names the user of the process that dialled.
//
// # Bridges
//
// A program that drives a bridge to another machine gives its end to the fabric as an
// [ntb.Attachment]. Everything else stays as it is. Here each node is a machine, and nothing but
// the bridge joins the two:
//
//	SDP_FABRIC='line:lab?node=1&nodes=2'
//
//	f, err := sdp.OpenWith("", sdp.Devices{
//		Attach: func(w sdp.Wire) (ntb.Attachment, error) { return driver.Attach(w.Side) },
//	})
//	ln, err := sdp.Listen("sdp", ":8080") // on node 1
//	c, err := sdp.Dial("sdp", "node1:8080") // on node 2
//
// The process that calls OpenWith owns the links of its node. Others of that machine become its
// members by leaving out nodes=N, and need no bridge. When a neighbour's process ends, connections
// to it end with ECONNRESET, and when one comes in its place, the link is made again. See
// [Devices].
//
// # What this does to your process
//
//   - It spins. A wait polls memory for 50 µs before it sleeps, if a processor is
//     free for that, in half of GOMAXPROCS goroutines at most. It polls for longer where others have to be woken first: for a
//     new connection, over hops, for another machine, and where many Reads take turns. The option spin=0 of SDP_FABRIC turns it
//     off.
//   - It has goroutines while a [Fabric] is open: some of the Fabric, and some for each process with which
//     there is a link. None holds a thread of its own while it waits, but a question to the kernel locks
//     one until it is answered. Fabric.Close ends them. The default Fabric closes after its last use.
//   - It leaves files. A fabric is a directory, in /run/user/UID/ntbnet or /tmp/ntbnet-UID, unless
//     SDP_FABRIC is the path of another one; a process has a socket there. The fabric mem:NAME has none.
//   - It maps memory: 1 GiB of addresses for each side of a link, of which pages are taken as they are used, by
//     three descriptors. The options window and buffer make that less.
//   - It registers with membarrier, by which other processes make its threads pass a barrier. Where a filter
//     of system calls forbids that, each message costs a fence more.
//   - It asks by netlink, in each dial of network "tcp", which socket is meant. Network "sdp" does not.
//   - It handles SIGBUS, in front of Go's own handler, once a link is over the memory of an ivshmem function or a
//     file, which may go away. Other faults are passed on. Without such a link there is no handler.
//   - It logs what is refused, forbidden or missing by the default logger of log/slog.
//
// # Connections
//
// A [Conn] behaves as a *net.TCPConn on Linux does, to the order of its errors. The few
// differences, with their reasons, are in the section "Differences from net" of docs/replacing-net.md.
// The garbage collector closes what a program has dropped without Close, except in a bubble of
// testing/synctest.
//
// # Tests with virtual time
//
// In a bubble of testing/synctest, a fabric mem:NAME works, and its waits do not hold up the
// bubble's clock. [Open] it and close the [Fabric] in the bubble, since what is made outside cannot
// be used there. The default Fabric stays open for 250 ms after its last use, which a bubble that has
// ended never reaches.
//
// A fabric of shared memory cannot work there, since a wait for another process keeps the clock
// from going on. Open, Dial and Listen fail with [errors.ErrUnsupported], as they do with a Fabric
// that was opened outside. Network "tcp" of the default Fabric is TCP there, and its names are looked
// up by package net, whose resolver belongs to the bubble that asks it first. So use IP addresses.
//
// A bubble is recognized until its clock, which begins at 2000, reaches 2020.
//
// # Errors
//
// As with net, every error but io.EOF is a *net.OpError, with net's names of operations and net's texts.
// A *os.SyscallError in it has the name of the system call of TCP that would have failed, such as "read"
// or "connect". With errors.Is programs find the cause: net.ErrClosed, os.ErrDeadlineExceeded,
// context.Canceled, syscall.ECONNREFUSED, ECONNRESET, EPIPE, EADDRINUSE, EHOSTUNREACH. EACCES is a user
// that is refused, and ENOBUFS a window without memory for another connection.
package sdp
