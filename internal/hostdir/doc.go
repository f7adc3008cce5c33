// Package hostdir is the directory of a host, by which its processes find each other: the
// numbers of the processes, the ports that they hold, and the cables between them.
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
// if another user made them first. The file stays empty, and stays until [Remove]. ID is 32
// random hexadecimal digits, and identifies the fabric.
//
// Claims are locks on single bytes of that file, of the kind that belongs to an open
// file (F_OFD_SETLK). The kernel drops them when the process dies, so no claim is ever
// stale. The kernel also reports which byte is locked, so nothing needs to be written:
//
//	byte N                    process N, 1 to 65535
//	byte P<<17                port P, 1 to 65535
//	byte (P<<17) + 1 + N      port P is held by process N
//	bytes from 1<<62 on       a process accepts connections for a TCP socket
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
// # Cables
//
// Process N listens for cables at the abstract Unix socket @ntbnet-ID-N, which leaves
// nothing in the file system. Only processes that can read the directory know the name,
// and both sides check the other's uid.
//
// In a user namespace all users without a number appear as the overflow uid, mostly
// 65534. A process that has that uid itself cannot distinguish its user from others. It
// opens no directory, and neither connects nor accepts.
package hostdir
