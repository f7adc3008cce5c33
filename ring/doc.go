// Package ring carries ordered remote writes, set-up messages and notifications
// from one node to another.
//
// It is not a descriptor ring: the name is the topology. A queue in memory is
// called a queue here.
//
// A [Node] is this process' place among the nodes. A [Peer] is another node as
// seen from here. What a Peer offers is all that the layers above know:
//
//   - a region of its memory that can be written ([Peer.Remote]), and the region
//     here that it writes ([Peer.Local]);
//   - set-up messages, which it handles one by one ([Peer.Send], [Service]);
//   - notification words, one per attached object and direction, which say that
//     something in memory is worth a look ([Peer.Notify], [Notified]);
//   - an order of stores and looks for whoever is about to sleep ([Peer.Order]).
//
// Whether a peer is a neighbour over a mapped window or several hops away does
// not show. (At present every peer is a neighbour; set-up frames carry source and
// destination already.)
//
// # The window of a link
//
// Offsets in bytes from the beginning of a node's inbound window, all written by
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
// # Notification
//
// To notify slot s of direction d, a node takes a number that was never used
// before, and publishes it as the notification word, then as the summary word,
// then as the master word. It rings doorbell 0 if the peer's link goroutine has
// said, by its arm word, that it sleeps, and was not woken since. Whoever looks compares the
// master word with the one it saw last, then the summary words, then the words
// of a changed group. Any number that differs means "look". Nothing overflows,
// nothing blocks, and a notifier that is preempted before it rings delays the
// sleeper until it goes on; whoever looks meanwhile finds its words. Numbers that pass each other do no harm: a late one differs from
// the last one seen as well.
package ring
