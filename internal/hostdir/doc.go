// Package hostdir is the directory of a host, by which its processes find each other. It
// has their numbers, the ports that they hold, and the cables between them.
//
// It is not a transport. What is sent over a cable is up to ntb/ntbshm and the packages
// above.
//
// docs/protocol/meeting.md has the directory: its names and modes, the bytes of the claim file,
// and the sockets of cables. There is no daemon.
//
// # The directory
//
// A [Place] is a directory of this user, or one by its path. The owner of the latter is trusted,
// since nobody else can stop the owner from putting other files in the place of these. A process
// that is given a group makes such a directory if it is not there, and says who may rename it.
//
// A directory is opened once, and checked as it was opened. Then all names are
// looked for in what was opened, whatever is at the path by then.
//
// Where /run/user/UID is made while processes use a fabric in /tmp/ntbnet-UID, all join it there
// until these have ended. A process that is about to join has an exclusive flock on
// /tmp/ntbnet-UID, if it is there, looks for /run/user/UID, then for claims in
// /tmp/ntbnet-UID/NAME, and claims its number.
//
// As long as a process uses a directory, it holds a shared flock on it. Programs that remove what
// is old, such as systemd-tmpfiles, take an exclusive one, or leave the directory alone. A process
// that meets an exclusive one for half a second enters without, and takes its own later.
//
// A place is lost when its directory, or the claim file, is no longer where the path leads. Processes
// that come later do not find the ones that have it open. [Dir.Watch] reports that, by inotify. What is
// watched is the claim file, since it goes before its directory, and renames of the directory and of
// those above.
//
// An empty directory of a user's fabric may be removed. A process that has opened it and claims
// its number too late finds that the claim file has no name any more, and opens the directory
// again.
//
// # Claims
//
// Claims are locks on single bytes of the claim file, of the kind that belongs to an open
// file (F_OFD_SETLK). The kernel drops them when the process dies, so no claim is ever
// stale. The kernel also reports which byte is locked, so nothing needs to be written. No two
// bytes that one process locks are neighbours, since the kernel would report them as one lock.
//
// A lock says nothing about whose it is. So a member of the group can claim in the name of
// another process. Processes of a fabric within one process have such claims too, in [Memory].
//
// In a user namespace all users without a number appear as the overflow uid, mostly
// 65534. A process that has that uid itself cannot distinguish its user from others. It
// opens no directory, and neither connects nor accepts.
package hostdir
