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
//   - an order of stores and looks for one who is about to sleep ([Peer.Order]).
//
// Whether a peer is a neighbour over a mapped window or several hops away does
// not show. To a neighbour a store is a CPU store and nothing more. To any other
// node it is an entry of a frame, which the nodes between pass on.
//
// A process that only has direct links uses [Node.Up]. In a fabric of several
// hosts [Node.Join] comes first, then [Node.Link] for each cable, and [Node.Peer]
// finds any node:
//
//	n := ring.NewNode(ring.MakeID(2, 1)) // host 2
//	n.Register(ring.ServiceSDP, service)
//	err := n.Join(ring.Options{Topology: ring.Ring, Nodes: 5})
//	left, err := n.Link(ctx, leftDevice, ring.Left)   // host 1
//	right, err := n.Link(ctx, rightDevice, ring.Right) // host 3
//	p, err := n.Peer(ctx, n.Owner(4))                  // two hops
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
// said, by its arm word, that it sleeps, and was not woken since. Who looks compares
// the master word with the one it saw last, then the summary words, then the words of
// a changed group. Any number that differs means "look". Nothing overflows, nothing
// blocks, and a notifier that is preempted before it rings delays the sleeper until it
// goes on; who looks meanwhile finds its words. Numbers that pass each other do no
// harm: a late one differs from the last one seen as well.
//
// # Links and lanes
//
// A [Link] splits a device. The beginning of the windows belongs to lanes, which
// carry frames; the rest is a device of its own, with its own doorbell bits and
// scratchpads, for the neighbour's direct Peer.
//
// A lane is a queue of fixed slots in the receiver's window, one in each
// direction, with credit as a word in the sender's. It has a doorbell bit and a
// worker, a goroutine that spins a little and then sleeps. A frame that came over
// the left link goes on over the right one and the other way round, and stays on
// its lane: it is copied from slot to slot, once per hop, without an allocation,
// and without a system call while the workers are awake. A worker calls no upper
// layer and waits for nobody: where the next link has no room, the head stays in
// its slot, and who learns of credit there goes on with it.
//
// A hop costs about 0.15 µs of CPU for a small frame and 1.1 to 1.2 plain copies for
// 64 KiB while the node is busy ([ForwardCost], BenchmarkForward), and where the
// worker sleeps a wake-up, which costs far more: sdp-perf ring measures both.
// A frame goes on when it is whole: a large write is many frames, and each hop sends
// the first long before it has the last.
//
// # Members
//
// Several processes of a host share its links. One owns them; each of the others, a
// member ([Options.Member]), has one link, Up to the owner, whose end there is Down.
// The owner forwards:
//
//	from        for              to
//	Left,Right  this host        Down to that process
//	Left,Right  another host     the other side
//	Down        another host     the side that the owner's own frames would take
//	Up          this process     here: a member forwards nothing
//
// So a frame goes over two links more than there are hosts on its way, at the most. A
// frame that came from Down must name that member as its source; news, frames for
// the same host, and anything else that a member may not send are dropped and counted.
// Within the host, a link's direct peer serves for what the two have to say to each
// other; members have no link among themselves.
//
// Members believe the owner: it passes all news on, and they make none. The owner's
// news name its members. A member that is not named is not there: tunnels to it end
// after the same second that an unreachable host has. When the owner ends, a new one
// may take its place within that second; the tunnels of members go on then. Every news
// of a host has tunnels to it ask if their other end still knows them, since another
// process may have its id by now.
//
// # The bubble rule
//
// In a ring of full queues every head waits for the next, for ever. So a node puts
// a frame of its own into a lane only if two slots are free, and forwards if one
// is; both are decided under the lane's lock. Then, in each direction and lane,
//
//   - one slot of all the ring's queues is always free: forwarding takes one and
//     gives one back, delivering gives one back, and what is put in leaves one;
//   - the node before a queue with a free slot can forward into it; if it has
//     nothing to forward, its own incoming queue is empty, or has a head that is
//     delivered, so that one has a free slot too, and the same holds for the node
//     before: round the ring, a frame moves or all queues are empty;
//   - the last node always takes its frames, since a worker does not wait.
//
// Frames have at most as many hops as there are nodes, so each arrives. The rule
// counts slots as the sender knows them, which are never more than are free.
// Without it the same load stops (TestAllToAllStopsWithoutTheBubbleRule).
//
// Links within a host are no part of the ring, so they need no rule of their own:
//
//   - a frame from a member enters the ring as the owner's own do, with two slots free
//     and in turns with them; until then it waits in a slot of the member's link, where
//     only that member's frames wait behind it;
//   - a frame for a member leaves the ring, into a link whose other end forwards
//     nothing and always takes. If that process is stopped, it does not: when it has
//     given no credit for 100 ms, its frames are dropped and counted until it gives some
//     again. Tunnels send them again.
//
// So no frame in the ring waits for ever for one outside of it.
//
// Own frames need two slots, so forwarding could starve them. Own traffic, though,
// goes as soon as its writer runs, where forwarded traffic needs the neighbour's and
// this node's worker to run too, so it could starve forwarding. So both have their
// part of the bytes: a lane counts by how much one is ahead of the other, up to 32 of
// the largest frames, and the one behind goes first. Forwarded traffic counts as there
// from when a frame lies in this node's window, looked at or not; and when own traffic
// is ahead by more than four of the largest frames, also while the neighbour, which
// waited for room, has been told of it and has not sent yet, for 10 ms at the most.
// Stores of a direct peer are not frames and take no turns.
//
// In its turn, own traffic may have the only free slot left alone for 20 µs, so
// that another becomes free; not for longer, since all nodes of a ring may be
// doing that at once, and less often where none became free.
//
// # Tunnels
//
// A routed peer is a tunnel: an [ntb.Device] of frames, over which all the above
// works as over a bridge, bring-up included, and which passes the conformance
// suite of bridges. Its inbound window is memory of this node, given to that one
// source: the grant. A frame may say that it is from anybody, so only a process that the
// news name gets one, and those of one host 1024 at the most. Its outbound window is an [ntb.Sink]: stores are gathered in
// an open frame that is sent at the next Publish, so a small message is one frame.
// Order is a frame that the other end's worker answers: a round trip. All of a
// tunnel's frames are in sequence, so who has the answer has what was
// published before it.
//
// The source keeps what is not acknowledged ([Options.Retention]). No store waits for room
// there: the caller may hold locks that others need. Data asks for room first
// ([Peer.TryWrite]), and waits for its [Turn] where its deadline counts, while the
// retention is full or 16 frames wait for the lane: what is stored next, the peer's
// credit say, must not be late by all that waits. Some room is left for words. Those that
// find none are kept aside and follow in their order, of those of which only the latest
// value counts that one alone; data comes behind them. If there are more than any honest
// peer could leave there, the tunnel ends.
//
// The destination takes the next number only, so everything once and in order. It
// acknowledges in frames of the other direction, alone after a quarter of the
// retention or 5 ms, and again what came again.
//
// All that the other end stores passes through this process, so who waits for it is
// woken by its arrival ([Peer.Watch]), and need not tell the other end first: that would
// be a frame, and a round trip until it knew. Notifications always ring.
//
// What is published is sent, but has not arrived: it is in this process' memory or
// on the way. Who must know calls [Peer.Order]. Node.Close waits up to 2 s
// until it has arrived.
//
// # Failover
//
// Every node tells all others, by frames of news, which of its links are up, and
// their epochs: a link may be cut and made again before anyone is told. Routes are
// the ring's two directions, the shorter first, those that are known to be cut left
// out. When a tunnel's direction changes, everything kept is sent again by the new
// one; late frames of the old one are duplicates. A cut link's queues are never used
// again: a mended link is a new device. Frames that a cut lost without any news are
// sent again after 200 ms without an acknowledgement, or four round trips if they take
// longer.
//
// A node that is started again answers what comes for its tunnels of before with resets.
// They have their turn as all own frames have, so they get through however busy the lanes
// are. News of a host have tunnels to it try at once that have gone without an answer for
// long.
//
//	state      when                                   what happens
//	opening    open is sent, every 50 ms              accept comes: up; no way for 1 s: down
//	up         the way changes, or one of its links   all kept is sent again by the new one
//	up         no acknowledgement for 0.2 to 3.2 s    all kept is sent again
//	up         no way in any direction for 1 s        down, ErrUnreachable
//	up         close or reset comes, or a bad frame   down
//	up         262144 stores found no room            down, ErrProtocol
//	down       closed here, close not acknowledged    kept and close are sent, and again
//	closed     close is acknowledged, or 30 s pass    forgotten
//
// Connections to a neighbour use its direct peer and end with that link. With
// [Options.Failover] they use a tunnel as well, and go on.
//
// A stopped process keeps its tunnels. An owner, or the only process of a host, stops
// all that goes through its node; a member stops nobody else.
package ring
