// Package hostdir is the directory of a host, by which its processes find each other: the
// numbers of the processes, the ports that they hold, and the cables between them.
//
// It is not a transport. What is sent over a cable is up to ntb/ntbshm and the packages
// above.
//
// # The directory
//
// The processes find each other in a directory, a [Place]. There is no daemon. The
// directory is one of three:
//
//	/run/user/UID/ntbnet/NAME    of a user's fabric, where /run/user/UID exists
//	/tmp/ntbnet-UID/NAME         of a user's fabric, elsewhere
//	/PATH                        of users of a group, or of one user
//
// The place of a user's fabric depends on the uid alone. It is made when it is first used.
// Both directories have mode 0700, and are refused if another user made them first, or others may
// enter. Bits of the owner that are missing are added. Where
// /run/user/UID is made while processes use a fabric in /tmp/ntbnet-UID, all join it there until
// these have ended: who is about to join has an exclusive flock on /tmp/ntbnet-UID, if it is there,
// looks for /run/user/UID, then for claims in /tmp/ntbnet-UID/NAME, and claims its number.
//
// A directory by its path is there already. It has mode 0700 and is the user's own; or it
// is setgid and sticky, of mode 3770, so that the members of its group may enter, what they
// make belongs to the group, and none removes what another one has made. Its owner is root,
// the user, or one whom the user names. The owner is trusted, since nobody else can stop the
// owner from putting other files in the place of these. A process that is given a group makes
// such a directory if it is not there, and says who may rename it.
//
// A directory is opened once, and checked as it was opened. Then all names are
// looked for in what was opened, whatever is at the path by then.
//
// As long as a process uses a directory, it holds a shared flock on it. Programs that remove what
// is old, such as systemd-tmpfiles, take an exclusive one, or leave the directory alone. A process
// that an exclusive one keeps away for half a second enters without, and takes its own when that
// ends.
//
// A place is lost when its directory, or the claim file, is no longer where the path leads. Processes
// that come later do not find those that are in it. [Dir.Watch] has these told, by inotify. What is
// watched is the claim file, since it goes before its directory, and renames of the directory and of
// those above.
//
// # Claims
//
// In the directory is an empty file, claims-v2, which stays until [Remove]. Where several
// hosts share a directory, names in it begin with nodeH- for host H.
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
// The process that holds it owns them. A lock says nothing about whose it is. So a member of
// the group can claim in the name of another process.
//
// No two bytes that one process locks are neighbours, since the kernel would report
// them as one lock.
//
// # The board
//
// Processes leave each other texts about other things than links on a [Board]. Each
// process has one text, which ends with it, as its claims do. The board is the file
// board in the directory, or in the directory NAME, which all hosts of a fabric on this
// machine share.
// Proxies leave there what they forward.
//
// # Cables
//
// Process N listens for cables at the Unix socket cable-N-RANDOM in the directory. The mode
// of the directory keeps others out, in whatever network namespace they are. The socket is
// bound as new-N-RANDOM, gets its mode, and is renamed when it listens, while the process
// has its number claimed. A name is used once. A process that is killed leaves its socket,
// at which nobody listens. The next process that claims a number removes those, as far as
// it may: those of its own user, or all if it is root or the directory's owner. It claims
// the number of the dead process meanwhile. Both sides check the other's user: it is their
// own; or, where a group shares the directory, root, the owner, or in the group.
//
// An empty directory of a user's fabric may be removed. A process that has opened it and claims
// its number too late finds that the claim file has no name any more, and opens the directory
// again.
//
// # Versions
//
// The names in the directory, the claims and the way to make cables are of version 2, which
// the name of the claim file has. A process refuses a directory where another one has claimed
// something in the file of another version. Processes of version 1 took for their claim file
// the first by name of claims- and 32 hexadecimal digits. In a user's own place that is a
// directory, at which they end.
//
// In a user namespace all users without a number appear as the overflow uid, mostly
// 65534. A process that has that uid itself cannot distinguish its user from others. It
// opens no directory, and neither connects nor accepts.
package hostdir
