// Package ring is a part of packages sdp and shmem, which programs import: it carries ordered
// remote writes, set-up messages and notifications over several hops.
//
// It is not a descriptor ring: the name is the topology. A queue in memory is
// called a queue here.
//
// The package joins the links to neighbours, of package internal/link, to a fabric of several
// hosts: lanes that carry frames over a link, the forwarding of frames, tunnels to nodes that are
// not neighbours, and the routes there. Two processes with one link between them need none of that.
//
// A [Node] is a [link.Node] that takes part in such a fabric. [Join] makes it one, then
// [Node.Link] is called for each cable, and [Node.Peer] finds any node:
//
//	n := link.NewNode(link.MakeID(2, 1)) // host 2
//	n.Register(link.ServiceSDP, service)
//	node, err := ring.Join(n, ring.Options{Topology: ring.Ring, Hosts: 5})
//	left, err := node.Link(ctx, leftDevice, ring.Left)   // host 1
//	right, err := node.Link(ctx, rightDevice, ring.Right) // host 3
//	p, err := node.Peer(ctx, node.Owner(4))               // two hops
//
// A [link.Peer] may be a neighbour over a mapped window, or several hops away. To a neighbour
// a store is a CPU store and nothing more. To any other node it is an entry of a frame, which
// the nodes between pass on.
//
// # Links and lanes
//
// A [Link] splits a device. The beginning of the windows belongs to lanes, which carry frames. The
// rest is a device of its own, with its own doorbell bits and scratchpads, for the neighbour's
// direct Peer.
//
// A lane is a queue of fixed slots in the receiver's window, one in each direction, with credit as
// a word in the sender's window. It has a doorbell bit and a worker, a goroutine that polls for a
// short time after it had work, and then sleeps. Between polls it offers its processor to other
// processes, such as the next one on the route. A goroutine that waits for what frames bring, in a
// Read perhaps, polls the lane itself ([ntb.Frames]), and the worker rests. It takes frames for
// this node alone. A frame that came over the left link goes on over the right one and vice versa,
// and stays on its lane. It is copied from slot to slot, once per hop, without an allocation, and
// without a system call but offers of the processor while the workers are awake. A worker calls no
// upper layer but to wake one of its waiters, and never waits. Where the next link has no room, the
// head stays in its slot, and the goroutine that learns of credit there goes on with it.
//
// A lane pulls: whose frame is next is decided when there is a slot for it, and the frame is made
// then. Tunnels, advertisements and resets are sources, which keep what they have to send until
// their turn; a lane of another link waits with its head in its slot. The goroutine that finds a
// frame or room runs the pull. The locks are taken in one order: that of the lane a frame comes
// from, that of the lane it goes to, that of a tunnel.
//
// A node forwards a frame when it is complete. A large write is many frames, and each hop sends the
// first long before it has the last. BenchmarkForward measures the work of a hop.
//
// # Members
//
// Several processes of a host share its links. One process owns them. Each of the others is a
// member ([Options.Member]). It has one link, Up to the owner, whose end there is Down. The owner
// forwards:
//
//	from        for              to
//	Left,Right  this host        Down to that process
//	Left,Right  another host     the other side
//	Down        another host     the side that the owner's own frames would take
//	Up          this process     here: a member forwards nothing
//
// So a frame goes over at most two links more than there are hosts on its route. A frame that came
// from Down must name that member as its source. Link states, frames for the same host, and
// anything else that a member may not send are dropped and counted. Within the host, the direct
// peer of a link serves for what its two ends exchange. Members have no links among themselves.
//
// Members believe the owner. It passes all link states on, and they make none. The owner's link
// state names its members. A member that is not named does not exist: tunnels to it end after the
// same second as those to an unreachable host. When the owner ends, a new one may take its place
// within that second. Then the tunnels of members go on. Whenever a link state of a host comes,
// tunnels to it ask whether their other end still knows them, since another process may have its id
// by now.
//
// # The bubble rule
//
// In a ring of full queues every head would wait for the next one, for ever. So a node puts a frame
// of its own into a lane only if two slots are free, and forwards if one is free. Both are decided,
// and done, under the lane's lock. Then, in each direction and lane,
//
//   - one slot of all the ring's queues is always free: forwarding takes one and gives one back,
//     delivering gives one back, and a frame that is put in leaves one;
//   - the node before a queue with a free slot can forward into it. If it has nothing to forward,
//     its own incoming queue is empty, or has a head that is delivered. So that queue has a free
//     slot too, and the same holds for the node before. All around the ring, a frame moves or all
//     queues are empty;
//   - the last node always takes its frames, since a worker does not wait.
//
// A frame has at most as many hops as there are nodes, so each arrives. The rule counts slots as
// the sender knows them, which are never more than are free. Without the rule a ring stops
// (TestAllToAllStopsWithoutTheBubbleRule).
//
// Links within a host are no part of the ring, so they need no such rule:
//
//   - a frame from a member enters the ring as the owner's own frames do, with two slots free and
//     in turns with them. Until then it waits in a slot of the member's link, where only that
//     member's frames wait behind it;
//   - a frame for a member leaves the ring, into a link whose other end forwards nothing and always
//     takes frames, unless its process is stopped. When that has given no credit for 100 ms, its
//     frames are dropped and counted until it gives some again. Tunnels send them again.
//
// So no frame in the ring waits for ever for one outside of it.
//
// Own frames need two slots. Under steady forwarding only one is ever free, so forwarding could
// starve them. On the other hand, own traffic goes as soon as its writer runs, where forwarded
// traffic needs the neighbour's and this node's worker to run too. So own traffic could starve
// forwarding. Therefore both get their share of the bytes, by deficit round robin in two stages:
// first between own and forwarded traffic, then among the sources of each. A kind that may not go
// is passed over and keeps what it is owed, up to 32 of the largest frames.
//
// Forwarded traffic counts as waiting from when a frame lies in this node's window, even if no
// goroutine has read it. When own traffic is ahead by more than four of the largest frames,
// forwarded traffic also counts as waiting while the neighbour, which waited for room, has been
// notified of it and has not sent yet, for 10 ms at most. Stores of a direct peer are not frames
// and take no turns.
//
// In the turn of own traffic, a forwarded frame leaves the only free slot alone for up to 20 µs, so
// that another one becomes free. It may not do so for longer, since all nodes of a ring may be
// doing that at once: then no slot becomes free, and the argument above holds again as soon as one
// of them goes on. Where none became free, the next frames do not wait, up to 15 of them.
//
// # Tunnels
//
// A tunnel has four parts. [arq.End] is its handshake and its sender. The inbound part is what the
// other end stores here, and takes each frame once, in order ([arq.Receiver]). The next hop is the
// link that its frames take. The device, which those above have, puts these together.
//
// A routed peer is a tunnel: an [ntb.Device] of frames, over which all the above works as over a
// bridge, bring-up included, and which passes the conformance suite of bridges. Its inbound window
// is memory of this node, given to that one source. A frame may claim any source, so only a process
// that a link state names gets such memory, and those of one host at most 512. Link states, too,
// may be forged: over the link to one neighbour at most 1024 tunnels come, in whatever names. With
// an Options.Window of 16 MiB and an Options.Retention of 2 MiB that is 18 GiB of address space for
// each neighbour, of which the other ends can have all touched.
//
// Its outbound window is an [ntb.Sink]. Stores are gathered in an open frame that is sent at
// the next Publish, so a small message is one frame. Order is a frame that the other end's worker
// answers, which takes a round trip. All frames of a tunnel are in sequence. So a node that has the
// answer has everything that was published before it.
//
// The source keeps frames until they are acknowledged ([Options.Retention]). No store waits for
// room there, since the caller may hold locks that others need. Data asks for room first
// ([link.Peer.TryWrite]). While the retention is full, or 16 frames wait for the lane, data waits
// for its [ntb.Turn], where its deadline counts. Otherwise what is stored next, such as the peer's
// credit, would be late by all that waits. Some room is left for words. Words that find no room
// are kept aside and follow in their order. Of a word of which only the latest value counts, only
// that value is kept. Data comes behind them. If more is kept aside than any honest peer could
// cause, the tunnel ends.
//
// The destination accepts only the next number, so everything arrives once and in order. It
// acknowledges in frames of the other direction. It sends an acknowledgement alone after a quarter
// of the retention or 5 ms, and again for frames that came again.
//
// Everything that the other end stores passes through this process. So its arrival wakes the waiter
// ([link.Peer.Watch]), which need not publish an arm first. That would cost a frame, and a round
// trip until the other end knew. Notifications always ring.
//
// What is published is sent, but has not arrived: it is in this process' memory or on the way. A
// caller that must know calls [link.Peer.Order]. Node.Close waits up to 2 s until it has arrived.
//
// # Failover
//
// The owner of each host advertises its link state to all others: which of its links are up,
// and their epochs. The epochs matter because a link may be cut and made again before the other
// nodes learn of it. Routes are the ring's two directions, the shorter first, without those
// that are known to be cut. In a ring of an even number of hosts, two that are opposite each
// other have two routes of the same length. A tunnel's epoch chooses one, so both ends use the
// same links, and several tunnels use both routes. When a tunnel's direction changes, everything
// that is kept is sent again in the new direction. Late frames of the old one are duplicates.
// The queues of a cut link are never used again: a mended link is a new device. Frames may be
// lost in a cut that no link state shows. They are sent again after 200 ms without an
// acknowledgement, or after four round trips if these take longer.
//
// A node that is started again answers frames for its former tunnels with resets. Resets take turns
// like all own frames, so they get through however busy the lanes are. When a link state of a host
// comes, tunnels to it that have had no answer for long try at once.
//
// The states of a tunnel, and what leads from one to another, are those of [arq.State]. Here is
// what the device does in each:
//
//	state      the device   when                                   what happens
//	opening    is opening   no route for 1 s, or the dial ends     ended
//	up         is up        a new route, or a new link on it       all kept is sent again by the new one
//	up         is up        no acknowledgement for 0.2 to 3.2 s    all kept is sent again
//	up         is up        no route in any direction for 1 s      ended, ErrUnreachable
//	up         is up        close or reset comes, or a bad frame   ended
//	up         is up        262144 stores found no room            ended, ErrProtocol
//	draining   is down      disabled here                          kept and close are sent, and again
//	lingering  is closed    closed here                            the same, for 30 s
//	ended      is down      the other end is gone                  it waits for Close
//	closed     is closed    nothing is left to be sent             forgotten
//
// Connections to a neighbour use its direct peer and end with that link. With [Options.Failover]
// they use a tunnel as well, and survive the link.
//
// A stopped process keeps its tunnels. An owner, or the only process of a host, stops
// all that goes through its node; a member stops nobody else. Frames that wait for a
// neighbour would hold up others behind them in their lanes, for nodes before it. So when
// it has given no credit for 1 s while some wait, those that others sent are dropped and
// counted until it gives some again. Tunnels send them again.
package ring
