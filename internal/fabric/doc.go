// Package fabric joins a process to the fabric that an internal/spec names. It finds the other
// processes, on this host by internal/hostdir, makes the links to them, and keeps those to other
// hosts. It chooses the backend of each link.
//
// It is not a transport. What goes over a link is up to internal/link, ring and those above.
//
// # Several hosts
//
// In a ring, a line or a mesh each host has a directory of its own, or names of its own in one that
// all share. One process, whose spec gives the number of nodes, owns the host's links. The other
// processes are members. Their links lead to the owner, which forwards for them. To each other they
// connect as in a fabric of one host.
//
// A member asks for the owner when it begins, and an owner for the members that run. So
// neither polls for the other. The member takes the plan of the fabric from the first
// owner that it meets, and keeps it. When the owner has ended, another process may
// claim the links, and finds the members in the same way. Other hosts learn its number
// from the link states.
//
// This host does not know the holder of a port of another host. A process that dials
// asks the owner there. If the holder is another process, the answer names it.
//
// A cable begins with a greeting and an answer, by which both sides learn whether they have the
// same version and plan, before anything is mapped: internal/greeting. Over the same socket any process
// that may enter the directory can ask what the node knows: internal/census.
//
// A wire need not be a Unix socket. Where Spec.Attach returns an [ntb.Attachment], the link's
// devices are its sessions. They are opened without a greeting, since nothing but the bridge
// may join two machines. The link compares what a greeting does, and the directions of its
// two sides, when it comes up. Both sides refuse a mismatch. There is no limit to how long
// the neighbour may take to come.
//
// A goroutine for each link makes it, and makes it again when it is down. It sleeps while
// the link is up or the neighbour does not run. A node that starts makes cables to the
// nodes that run, which only accept them. If a link goes down and the neighbour still
// runs, both nodes try, with pauses of 10 ms to 1 s. If both begin at the same moment, the
// node with the lower number goes on.
package fabric
