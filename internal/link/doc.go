// Package link is the link to another process over a device: set-up messages, notifications,
// and a region of memory in each direction.
//
// A [Node] is this process, as its peers see it. A [Peer] is another process, as seen from
// here, at the end of one [Path], which the Peer owns. The layers above use only what a Peer
// offers:
//
//   - a region of its memory that can be written ([Peer.Remote]), and the region
//     here that it writes ([Peer.Local]);
//   - set-up messages, which it handles one by one ([Peer.Send], [Service]);
//   - notification words, one per attached object and [Event], which say that
//     something in memory is worth a look ([Peer.Notify], [Notified]);
//   - an order of stores and looks for a goroutine that is about to sleep ([Peer.Order]).
//
// A [Path] leads to the peer: a bridge, or [Frames] of package ring. Over frames a waiter sees
// the peer's stores arrive, data asks for room, and stores may be on their way. Two processes of
// one machine use this package alone:
//
//	n := link.NewNode(link.MakeID(1, 1))
//	n.Register(link.ServiceSDP, service)
//	p, err := n.Up(ctx, device)
//
// docs/protocol/link.md has the layout of the window, the bring-up and the notification words.
//
// # The words, and what pairs with what
//
//	word             written by                     after                    then it looks at
//	notification     Peer.Notify                    what it announces        –
//	summary          Peer.Notify                    notification             –
//	master           bridge.Wake                    all of the above         the peer's arm (pair S4)
//	arm              bridge.Park, from drain        –                        master (pair S4)
//	message          setupSend.put                  its payload              –
//	set-up credit    Peer.receiveSetup              the message is copied    –
//	set-up blocked   setupSend.flush                no credit was left       –
//
// internal/testing/litmus has the table of pairs, and tests each of them.
package link
