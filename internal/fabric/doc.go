// Package fabric keeps the directory of a fabric: the processes of one host, the ports
// that they hold, and the cables between them.
//
// It is not a transport. What is sent over a cable is up to ntb/ntbshm and the packages
// above.
//
// # The directory
//
// The processes of one user find each other in a directory, [Dir], which the first of
// them makes. There is no daemon, and nothing to set up:
//
//	/run/user/UID/ntbnet/NAME/claims-ID    where /run/user/UID exists
//	/tmp/ntbnet-UID/NAME/claims-ID         elsewhere
//
// The place depends on the uid alone. Both directories have mode 0700, and are refused
// if another user made them first. The file stays empty and is never removed. ID is 32
// random hexadecimal digits, and identifies the fabric.
//
// Claims are locks on single bytes of that file, of the kind that belongs to an open
// file (F_OFD_SETLK). The kernel drops them when the process dies, so no claim is ever
// stale. The kernel also reports which byte is locked, so nothing needs to be written:
//
//	byte N                    process N, 1 to 65535
//	byte P<<17                port P, 1 to 65535
//	byte (P<<17) + 1 + N      port P is held by process N
//
// Port 65536, which no listener can have, stands for the host's bridges to other hosts.
// The process that holds it owns them.
//
// No two bytes that one process locks are neighbours, since the kernel would report
// them as one lock.
//
// # The board
//
// Processes leave each other texts about other things than links on a [Board]. Each
// process has one text, which ends with it, as its claims do. The board is the file
// board in the directory NAME, which all hosts of a fabric on this machine share.
// Proxies leave there what they forward.
//
// # Several hosts
//
// In a ring, a line or a mesh each host has a directory of its own, NAME@NODE, and in
// it processes and ports as above. No other fabric's name has an @. One process, whose
// spec gives the number of nodes, owns the host's links. The other processes are
// members. Their links lead to the owner, which forwards for them. To each other they
// connect as in a fabric of one host.
//
// A member asks for the owner when it begins, and an owner for the members that run. So
// neither polls for the other. The member takes the plan of the fabric from the first
// owner that it meets, and keeps it. When the owner has ended, another process may
// claim the links, and finds the members in the same way. Other hosts learn its number
// from the news of the links.
//
// This host does not know the holder of a port of another host. A process that dials
// asks the owner there. If the holder is another process, the answer names it.
//
// A cable begins with a greeting and an answer, by which both sides learn whether they
// have the same version and plan. A fabric of one host is one of one node, whose plan
// has no links. A node with another number of nodes, topology, number of lanes or
// version is refused on both sides, before anything is mapped. That happens in Open,
// which asks all nodes that run, or when a link is made. Over the same
// socket any process of this user can ask what the node knows: [ReadTopology].
//
// A goroutine for each link makes it, and makes it again. It sleeps while the link is
// up or the neighbour does not run. A node that starts makes cables to the nodes that
// run. Those do nothing. If the link goes down and the neighbour still runs, both try,
// with pauses of 10 ms to 1 s, and the node with the lower number wins.
//
// # Cables
//
// Process N listens for cables at the abstract Unix socket @ntbnet-ID-N, which leaves
// nothing in the file system. Only processes that can read the directory know the name,
// and both sides check the other's uid.
//
// In a user namespace all users without a number appear as the overflow uid, mostly
// 65534. A process that has that uid itself cannot distinguish its user from others. It
// opens no directory, and neither connects nor accepts.
package fabric
