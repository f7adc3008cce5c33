// Package fabric knows who is here: the processes of one host, the ports that
// they hold, and the cables between them. It is not a transport: what goes over
// a cable once it is connected is the business of ntb/ntbshm and of the packages
// above.
//
// # The directory
//
// The processes of one user find each other in a directory, [Dir], that the
// first of them makes. There is no daemon and nothing to set up:
//
//	/run/user/UID/ntbnet/NAME/claims-ID    where /run/user/UID exists
//	/tmp/ntbnet-UID/NAME/claims-ID         elsewhere
//
// The place depends on the uid alone. Both directories have mode 0700 and are
// refused if somebody else made them first. The file stays empty and is never
// removed; ID is 32 random hexadecimal digits, and names the fabric.
//
// Claims are locks on single bytes of that file, of the kind that belongs to an
// open file (F_OFD_SETLK). The kernel drops them when the process dies, so no
// claim is ever stale, and it tells who asks which byte is locked, so nothing
// needs to be written:
//
//	byte N                    process N, 1 to 65535
//	byte P<<17                port P, 1 to 65535
//	byte (P<<17) + 1 + N      port P is held by process N
//
// Port 65536, which no listener can have, stands for the host's bridges to other
// hosts: who holds it owns them.
//
// No two bytes that one process locks are neighbours: the kernel would report
// them as one lock.
//
// # The board
//
// What processes say to each other that is not about links, they leave on a [Board]: a
// text each, which ends with its process as claims do. It is the file board in the
// directory NAME, which all hosts of a fabric on this machine have in common. Proxies
// leave what they forward there.
//
// # Several hosts
//
// In a ring, a line or a mesh each host has a directory of its own, NAME@NODE, and
// in it processes and ports as above. No other fabric's name has an @. One process,
// whose spec gives the number of nodes, owns the host's links. The others are
// members: their links lead to the owner, which forwards for them, and to each other
// they connect as in a fabric of one host.
//
// A member looks for the owner when it begins, and an owner for the members that are
// there; so neither waits for the other by the clock. The member takes the plan of the
// fabric from the first owner that it meets, and keeps it. When the owner has ended,
// another process may claim the links, and finds the members likewise. Other hosts
// learn its number from the links' own news.
//
// The holder of a port of another host is not known here. Who dials asks the owner
// there, whose answer names the process if it is another one.
//
// A cable between hosts begins with a greeting and an answer, by which both sides
// learn if they are of one plan. So a node with another number of nodes, topology,
// number of lanes or version is refused on both sides, before anything is mapped:
// by Open, which asks all nodes that run, or when a link is made. The same socket
// tells anyone of this user what the node knows: [ReadTopology].
//
// Links are made and kept made by a goroutine each, which sleeps while the link is
// up or the neighbour is not there. A node that starts makes cables to those that
// run; who was there first does nothing. If the link goes down and the neighbour
// still runs, both try, with pauses of 10 ms to 1 s, and the node with the lower
// number wins.
//
// # Cables
//
// Process N listens for cables at the abstract Unix socket @ntbnet-ID-N, which
// leaves nothing in the file system. Only who can read the directory knows the
// name, and both sides check the other's uid. In a user namespace all users without
// a number look like the overflow uid, 65534 mostly. A process that is that uid there
// can tell nobody from itself: it opens no directory, and neither connects nor accepts.
package fabric
