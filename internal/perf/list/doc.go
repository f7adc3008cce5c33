// Package list shows the fabrics of this machine: their directories, the processes that meet
// there, the ports on which these listen, and their connections. And it removes what processes
// that have ended left.
//
// It is not a process of a fabric. It reads what the directories have, and asks each process for
// its connections over a cable of its own. Which user a process has, the kernel says.
//
//	r, err := list.Read(ctx, "shm:/run/ntbnet/shop")
//	err = r.Table(os.Stdout)
package list
