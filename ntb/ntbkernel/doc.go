// Package ntbkernel makes attachments of the bridges that Linux drives, of whatever kind, by the device
// nodes of the kernel module ntb_cdev (kernel/ntb_cdev). The sessions are those of package ntbfixed.
//
// [Attach] opens the node of a bridge, /dev/ntb/ADDRESS, ADDRESS being that of its PCI function. One process
// has a node at a time, and the kernel enforces that. [Find] finds the bridge of a machine that has one, and
// [Bridges] lists all. An error says what is missing, and which command helps.
//
// # Generations
//
// The two modules agree before a process may store anything, and the link is ready then. The peer's memory is
// mapped for a generation of the link, which lasts while the link is ready. It ends when a cable is cut, the
// other side's process ends, its machine begins anew, or the bridge is removed. What is stored later reaches
// nobody. What has arrived stays, unless the bridge was removed.
//
// An [Attachment] waits in Open until the link is ready, and attaches to the memory of that generation. It
// is told of the end by an event, and ends the session. A bridge that was removed and comes back is opened again.
//
// # Doorbells
//
// Each doorbell of the hardware is an event, of which a goroutine of its own is told. After any of them all
// doorbell words are looked at, since some hardware reports others than were rung. Doorbells of ntbfixed share those
// of the hardware where that has fewer. Where it has none that are safe to use, the words are looked at
// from time to time.
//
// # Trust
//
// The peer is a stranger: its Caps say so, and what it sends is copied before it is used.
package ntbkernel
