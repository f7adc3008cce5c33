package lock

// Class is what a mutex protects. There are no other classes than the types below.
type Class interface{ class() info }

// info is a row of the table.
type info struct {
	name string
	rank int // locked only after classes of a lower rank
	// shared reports that nothing is stored for a peer while it is held: several peers
	// share it, so a device that blocks would hold up all of them.
	shared bool
}

// The classes, in the order in which they may be locked.
type (
	// shmem: a collective, a request to a PE, and the tables of a World.
	Team    struct{}
	Channel struct{}
	World   struct{}
	Slots   struct{}
	Heap    struct{}
	Turns   struct{}
	Sets    struct{}
	Sleeper struct{}

	// sdp: the default Fabric, the stacks, and what uses a Fabric.
	DefaultFabric struct{}
	Stacks        struct{}
	Users         struct{}

	// internal/fabric.
	Hosts struct{}

	// One peer: polling its words, and the two directions of a connection.
	Poll  struct{}
	Visit struct{}
	Read  struct{}
	Write struct{}
	Grow  struct{}

	// Opening a connection.
	Stack  struct{}
	Listen struct{}
	Dial   struct{}

	// One peer: its pool of queues, and what waits to be sent to it.
	Pool      struct{}
	StateWord struct{}
	State     struct{}
	DMA       struct{}
	Setup     struct{}

	// The lanes of a link, and the tunnels whose frames they carry.
	LaneIn  struct{}
	Receive struct{}
	LaneOut struct{}
	Tunnel  struct{}

	// Tables of a node.
	Node    struct{}
	Router  struct{}
	Tunnels struct{}

	// The directory of a host: processes, and the ports that they hold.
	Hub   struct{}
	Dir   struct{}
	Bytes struct{}

	// The ends of a bridge: sessions that begin, and doorbells.
	Attach struct{}

	// No other lock is taken while one of these is held. Nothing checks that.
	SendQueue struct{}
	Notes     struct{}
	Grants    struct{}
	LinkErr   struct{}
	Wait      struct{}
	Accept    struct{}
	Raw       struct{}
	DataArm   struct{}
	Counts    struct{}
	Queue     struct{}
)

// A Team's lock is not shared, since all PEs of a team end together anyway.
func (Team) class() info    { return info{"collective.Team", 1, false} }
func (Channel) class() info { return info{"activemsg.Channel", 2, false} }
func (World) class() info   { return info{"job.World", 3, true} }
func (Slots) class() info   { return info{"job.Team.freeMu", 4, true} }
func (Heap) class() info    { return info{"symheap.Heap", 5, true} }
func (Turns) class() info   { return info{"job.turns", 7, true} }
func (Sets) class() info    { return info{"job.sets", 8, true} }
func (Sleeper) class() info { return info{"onesided.sleepers", 9, true} }

func (DefaultFabric) class() info { return info{"sdp.defaultFabric", 10, true} }
func (Stacks) class() info        { return info{"sdp.stacks", 11, true} }
func (Users) class() info         { return info{"sdp.Fabric", 12, true} }

func (Hosts) class() info { return info{"fabric.keeper", 21, true} }

func (Poll) class() info  { return info{"link.looks.mu", 30, false} }
func (Visit) class() info { return info{"bounce.callLock.visits", 31, false} }
func (Read) class() info  { return info{"bounce.reader", 32, false} }
func (Write) class() info { return info{"bounce.writer", 33, false} }
func (Grow) class() info  { return info{"bounce.granter", 34, false} }

func (Stack) class() info  { return info{"sdp.stack", 40, true} }
func (Listen) class() info { return info{"listen.Table", 41, true} }
func (Dial) class() info   { return info{"dial.Table", 42, false} }

func (Pool) class() info      { return info{"bounce.Pool", 50, false} }
func (StateWord) class() info { return info{"bounce.Pair.stateWord", 51, false} }

func (State) class() info { return info{"bounce.state", 52, true} }
func (DMA) class() info   { return info{"bounce.dmaTx", 53, false} }
func (Setup) class() info { return info{"link.setupSend", 54, false} }

// All peers that are reached over a link share its lanes. But a lane counts as the
// link's own, since nothing gets past a neighbour that takes nothing.
func (LaneIn) class() info  { return info{"ring.inLane", 60, false} }
func (Receive) class() info { return info{"tunnel.inbound", 61, false} }
func (LaneOut) class() info { return info{"ring.outLane", 62, false} }
func (Tunnel) class() info  { return info{"tunnel.Tunnel", 63, false} }

func (Node) class() info    { return info{"link.Node", 70, true} }
func (Router) class() info  { return info{"ring.router", 71, true} }
func (Tunnels) class() info { return info{"ring.tunnelTable", 72, true} }

func (Hub) class() info   { return info{"fabric.memHub", 75, true} }
func (Dir) class() info   { return info{"hostdir.Claims", 76, true} }
func (Bytes) class() info { return info{"hostdir.Memory", 77, true} }

func (Attach) class() info { return info{"ntbfixed.session, ntbattach.meeting", 78, false} }

// The goroutines of all links add to the sendQueue of one.
func (SendQueue) class() info { return info{"ring.sendQueue", 79, true} }
func (Notes) class() info     { return info{"link.noteTable", 80, false} }
func (Grants) class() info    { return info{"bounce.grants", 81, false} }
func (LinkErr) class() info   { return info{"link.Cause.mu", 82, false} }
func (Wait) class() info      { return info{"bounce.deadline", 83, false} }
func (Accept) class() info    { return info{"listen.deadline", 84, true} }
func (Raw) class() info       { return info{"sdp.descriptor", 85, false} }
func (DataArm) class() info   { return info{"ring.dataArm", 86, false} }

// The statistics of a Fabric lock the Counts of each connection.
func (Counts) class() info { return info{"bounce.snapshot", 87, true} }

// Waits in the queue hold locks of all the classes before.
func (Queue) class() info { return info{"wait.Queue", 88, true} }
