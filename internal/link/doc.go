// Package link is the link to another process over a device: set-up messages, notifications,
// and a region of memory in each direction.
//
// A [Node] is this process, as its peers see it. A [Peer] is another process, as seen from
// here, behind one [ntb.Device], which the Peer owns. The layers above use only what a Peer
// offers:
//
//   - a region of its memory that can be written ([Peer.Remote]), and the region
//     here that it writes ([Peer.Local]);
//   - set-up messages, which it handles one by one ([Peer.Send], [Service]);
//   - notification words, one per attached object and [Event], which say that
//     something in memory is worth a look ([Peer.Notify], [Notified]);
//   - an order of stores and looks for a goroutine that is about to sleep ([Peer.Order]).
//
// The device may be a bridge to a neighbour, or a tunnel of package ring, whose stores are
// frames. Neither this package nor those above ask which of the two it is. They ask what it
// can do, by its [ntb.Caps]: whether a waiter sees arrive what the peer stores ([Peer.Watch]),
// whether data asks for room ([Peer.TryWrite]), whether what was stored is still on its way
// ([Peer.Deliver]), and whether stores, scratchpads and doorbells arrive in one sequence. Two
// processes of one machine use this package alone:
//
//	n := link.NewNode(link.MakeID(1, 1))
//	n.Register(link.ServiceSDP, service)
//	p, err := n.Up(ctx, device)
//
// # The window
//
// Offsets in bytes from the beginning of a process' inbound window, all written by
// the peer. N is the number of slots, which follows from the window's size
// ([slotsOf]).
//
//	0x0000   4  master word: changes with every notification and set-up message
//	0x0040   4  set-up credit: how many of our set-up messages the peer consumed
//	0x0080   4  set-up blocked: changes when the peer waits for set-up credit
//	0x00c0   4  arm: changes when the peer's link goroutine is about to sleep
//	0x0400 N/16 summary words, 4 bytes for each 64 slots
//	0x1000 16K  set-up queue: 64 messages of 256 bytes
//	0x5000  8N  notification words: data, space, 4 bytes each, for each slot
//	....        the region: the rest, from the next multiple of 4096
//
// # Bring-up
//
// [Exchange] is the bring-up of peers, and of the links of package ring. Each side writes its id,
// the size of its window and a random epoch to the other's scratchpads, and last a word with
// protocol and version. It repeats that until it finds its own epoch in the other side's answer.
// So each knows that the other one is there, and does not answer what a former process has
// written. Sides of different versions refuse each other. Each goes on until the other has seen
// enough to refuse as well.
//
// # Notification
//
// To notify slot s of event e, a process takes the next number, modulo 2^32. It
// publishes the number as the notification word, then as the summary word, then as the master
// word. It rings doorbell 0 if the peer's link goroutine has announced by its arm word that it
// sleeps, and was not woken since.
//
// A goroutine that looks compares the master word with the one that was last seen, then the summary
// words, then the words of a changed group. Any number that differs means "look". Nothing
// overflows, and nothing blocks. A notifier that is preempted before it rings delays the sleeper
// until it goes on. A goroutine that looks meanwhile finds its words. Numbers that overtake each
// other do no harm, since a late one also differs from the last one seen.
//
// Where Caps.Sequenced is set, the three words and the doorbell travel together, and the
// doorbell rings each time. There are no arm words. Nothing has to be ordered, since a word that
// is answered came before the answer.
//
// # The words, and what pairs with what
//
//	word             written by                     after                    then it looks at
//	notification     Peer.Notify                    what it announces        –
//	summary          Peer.Notify                    notification             –
//	master           Peer.announce                  all of the above         the peer's arm (pair S4)
//	arm              Peer.publishArm, from drain    –                        master (pair S4)
//	message          setupSend.put                  its payload              –
//	set-up credit    Peer.receiveSetup              the message is copied    set-up blocked (pair S5)
//	set-up blocked   setupSend.flush                no credit was left       set-up credit (pair S5)
//	                 setupSend.ask, in sequence     no credit was left       –
//
// internal/litmus has the table of pairs, and tests each of them.
package link
