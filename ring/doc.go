// Package ring is a part of packages sdp and shmem, which programs import: it carries ordered
// remote writes, set-up messages and notifications over several hops.
//
// It is not a descriptor ring: the name is the topology. A queue in memory is
// called a queue here.
//
// The package joins the links to neighbours, of package internal/link, to a fabric of several
// hosts. It has lanes that carry frames over a link, forwarding, and tunnels and routes to hosts
// that are no neighbours. Two processes with one link between them need none of that.
//
// A [Node] is a [link.Node] that takes part in such a fabric. [Join] makes it one, then
// [Node.Link] is called for each cable, and [Node.Peer] finds any process:
//
//	n := link.NewNode(link.MakeID(2, 1)) // host 2
//	n.Register(link.ServiceSDP, service)
//	node, err := ring.Join(n, ring.Options{Topology: ring.Ring, Hosts: 5})
//	left, err := node.Link(ctx, leftDevice, ring.Left)   // host 1
//	right, err := node.Link(ctx, rightDevice, ring.Right) // host 3
//	p, err := node.Peer(ctx, node.Owner(4))               // two hops
//
// A [link.Peer] may be a neighbour over a mapped window, or several hops away. To a neighbour
// a store is a CPU store and nothing more. To any other process it is an entry of a frame, which
// the processes between pass on.
//
// docs/protocol/hops.md has what lies in the windows and in frames, how members, routes and
// acknowledgements work, and the states of a tunnel. Here is what this package adds.
//
// # Lanes
//
// A lane has a worker, a goroutine that polls for a short time after it had work, and then sleeps.
// Between polls it yields its processor. A goroutine that waits for what frames bring, in a
// Read perhaps, polls the lane itself ([link.Frames]), and the worker rests. It takes frames for
// this process alone. A frame is copied from slot to slot, once per hop, without an allocation, and
// without a system call but yields while the workers are awake. A worker calls no
// upper layer but to wake one of its waiters, and never waits. Where the next link has no room, the
// head stays in its slot, and the goroutine that learns of credit there goes on with it.
//
// A lane pulls: whose frame is next is decided when there is a slot for it, and the frame is made
// then. Tunnels, link states and resets are sources, which keep what they have to send until
// their turn. A lane of another link waits with its head in its slot. The goroutine that finds a
// frame or room runs the pull. The locks are taken in one order: that of the lane a frame comes
// from, that of the lane it goes to, that of a tunnel.
//
// # Members
//
// A member ([Options.Member]) has one link, Up to the owner, whose end there is Down. The owner
// forwards for it. Within the host, the direct peer of a link serves for what its two ends
// exchange. Members have no links among themselves.
//
// Members believe the owner. A member that its link state does not name does not exist: tunnels to
// it end after the same second as those to an unreachable host. When the owner ends, a new one may
// take its place within that second. Then the tunnels of members go on.
//
// # The bubble rule
//
// In a ring of full queues every head would wait for the next one, for ever. So a process puts a frame
// of its own into a lane only if two slots are free, and forwards if one is free. Both are decided,
// and done, under the lane's lock. Then, in each direction and lane,
//
//   - one slot of all the ring's queues is always free. Forwarding takes one and gives one back,
//     delivering gives one back, and a frame that is put in leaves one;
//   - the process before a queue with a free slot can forward into it. If it has nothing to forward,
//     its own incoming queue is empty, or has a head that is delivered. So that queue has a free
//     slot too, and the same holds for the process before. All around the ring, a frame moves or all
//     queues are empty;
//   - the last process always takes its frames, since a worker does not wait.
//
// A frame has at most as many hops as there are hosts, so each arrives. The rule counts slots as
// the sender knows them, which are never more than are free.
//
// Links within a host are no part of the ring, so they need no such rule:
//
//   - a frame from a member enters the ring as the owner's own frames do, with two slots free and
//     in turns with them. Until then it waits in a slot of the member's link, where only that
//     member's frames wait behind it;
//   - a frame for a member leaves the ring, into a link whose other end forwards nothing and always
//     takes frames. Frames for a member that is stopped are dropped.
//
// So no frame in the ring waits for ever for one outside of it.
//
// Own frames need two slots. Under steady forwarding only one is ever free, so forwarding could
// starve them. On the other hand, own traffic goes as soon as its writer runs, where forwarded
// traffic needs the neighbour's and this process' worker to run too. So own traffic could starve
// forwarding. Therefore both get their share of the bytes, by deficit round robin in two stages:
// first between own and forwarded traffic, then among the sources of each. A kind that may not go
// is passed over and keeps what it is owed, up to 32 of the largest frames.
//
// Forwarded traffic counts as waiting from when a frame lies in this process' window, even if no
// goroutine has read it. Own traffic may be ahead by more than four of the largest frames. Then
// forwarded traffic also counts as waiting while a neighbour that waited for room has been
// notified and has not sent yet, for 10 ms at most. Stores of a direct peer are not frames and
// take no turns.
//
// In the turn of own traffic, a forwarded frame leaves the only free slot alone for up to 20 µs, so
// that another one becomes free. It may not do so for longer, since all hosts of a ring may be
// doing that at once. Then no slot becomes free, and the argument above holds again as soon as one
// of them goes on. Where none became free, the next frames do not wait, up to 15 of them.
//
// # Tunnels
//
// A tunnel is a [tunnel.Tunnel], for which this package finds the route and the lane.
//
// The inbound window of a routed peer is memory of this process, given to that one source. A frame may claim
// any source, so only a process that a link state names gets such memory, and those of one host at
// most 512. Link states, too, may be forged: over the link to one neighbour at most 1024 tunnels
// come, in whatever names. With an Options.Window of 16 MiB and an Options.Retention of 2 MiB that
// is 18 GiB of address space for each neighbour. The peers can have all of it touched.
// Node.Close waits up to 2 s until what was stored there has arrived.
//
// # Failover
//
// The queues of a cut link are never used again: a mended link is a new device. Frames may be lost
// in a cut that no link state shows.
//
// A process that is started again answers frames for its former tunnels with resets. Resets take turns
// like all own frames, so they get through however busy the lanes are.
//
// Connections to a neighbour use its direct peer and end with that link. With [Options.Failover]
// they use a tunnel as well, and survive the link.
//
// A stopped process keeps its tunnels. An owner, or the only process of a host, stops
// all that goes through its host; a member stops nobody else. Frames of others that wait for it
// are dropped after a second, or they would hold up those behind them in their lanes.
package ring
