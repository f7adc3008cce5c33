package status

import (
	"cmp"
	"slices"
)

// Process is a process of a fabric. Who asks takes the fields from PID to Ports from the kernel and the
// directory, whatever the process says.
type Process struct {
	Process int      `json:"process"`              // its number on its host
	Node    int      `json:"node"`                 // its host's number; 1 where there is one host
	PID     int      `json:"pid,omitempty"`        // 0 if it is of another pid namespace, or was not reached
	UID     int      `json:"uid"`                  // -1 if it has no number in this user namespace, or was not reached
	GID     int      `json:"gid"`                  // likewise
	User    string   `json:"user,omitempty"`       // name of that user; "" if it was not reached
	Owner   bool     `json:"owns_links,omitempty"` // of its node to others
	Ports   []string `json:"ports"`                // it listens on these: "sdp:8080", "tcp:8080"
	Error   string   `json:"error,omitempty"`      // why it does not say more

	Topology    string            `json:"topology,omitempty"`     // "shm", "ring", "line" or "mesh"
	Nodes       int               `json:"nodes,omitempty"`        // of the plan; 0 while a member does not know it
	Lanes       int               `json:"lanes,omitempty"`        // likewise
	Messages    int               `json:"messages,omitempty"`     // version of the messages that open connections; 0 if the program is too old to say it
	Uptime      float64           `json:"uptime_s,omitempty"`     // since it joined
	CPU         float64           `json:"cpu_s,omitempty"`        // processor time since it started; 0 if not known
	Refused     uint64            `json:"refused,omitempty"`      // how many processes it refused because they do not fit
	LastRefusal string            `json:"last_refusal,omitempty"` // reason of the last one
	Hosts       []Host            `json:"hosts,omitempty"`        // what it knows of all hosts
	Links       []Link            `json:"links,omitempty"`        // to other hosts, and between a member and its owner
	Drops       map[string]uint64 `json:"drops,omitempty"`        // frames dropped, by reason
	Connections []Connection      `json:"connections,omitempty"`  // of SDP

	// Memory of connections that have ended, which is kept with its pages for the next ones, and how much that may be
	// with the links that there are.
	Warm     int `json:"warm_bytes,omitempty"`
	WarmRoom int `json:"warm_room_bytes,omitempty"`
}

// Host is a host of a fabric of several, as a process knows it, and the way to it.
type Host struct {
	Host    int    `json:"host"`
	Process int    `json:"process,omitempty"` // the one that has its links; 0 if no link state came
	State   string `json:"state"`             // "self", "up", "unreachable", "unknown"
	// Left and Right are the states of its links: "up", "down", "none" (the end
	// of a line), "unknown". They are empty in a mesh.
	Left    string `json:"left,omitempty"`
	Right   string `json:"right,omitempty"`
	Members []int  `json:"members,omitempty"` // its processes that are reached through that one
	Epoch   uint64 `json:"epoch,omitempty"`   // number of its latest link state
	// Direction is that of the route: "left", "right", "direct", "up" to a member's owner; "" without one.
	Direction string `json:"direction,omitempty"`
	Hops      int    `json:"hops,omitempty"` // links on the route
	Side      string `json:"side,omitempty"` // Direction, or where the owner sends a member's frames
}

// States of a link.
const (
	Up      = "up"
	Making  = "making"
	Absent  = "absent"  // the neighbour does not run
	Down    = "down"    // the neighbour runs, and the error says why there is no link
	Unknown = "unknown" // of two nodes of other machines, in a mesh
)

// Link is an end of a link with lanes. Frames and bytes are counted since it came up; bytes include
// the frames' headers. Where a Link stands for both ends, in Fabric.Wires, it has the state alone.
type Link struct {
	Wire      int     `json:"wire,omitempty"`      // the same number at both ends; 0 for a link of a member
	From      int     `json:"from,omitempty"`      // host of this end
	To        int     `json:"to"`                  // host of the other end
	Process   int     `json:"process,omitempty"`   // at the other end
	PID       int     `json:"pid,omitempty"`       // of that, if it is a member
	Direction string  `json:"direction,omitempty"` // "left", "right", "direct"; "up" to the owner, "down" to a member
	State     string  `json:"state"`               // Up, Making, Absent, Down or Unknown
	Error     string  `json:"error,omitempty"`     // why it is not up
	Ups       int     `json:"ups,omitempty"`       // how often it came up
	Since     float64 `json:"since_s,omitempty"`   // how long the state has lasted
	Epoch     uint32  `json:"epoch,omitempty"`     // of this side, while the link is up

	OwnFrames       uint64 `json:"own_frames,omitempty"` // sent, of this node
	OwnBytes        uint64 `json:"own_bytes,omitempty"`
	ForwardedFrames uint64 `json:"forwarded_frames,omitempty"` // sent, of other nodes
	ForwardedBytes  uint64 `json:"forwarded_bytes,omitempty"`
	ReceivedFrames  uint64 `json:"received_frames,omitempty"` // from the neighbour, for any destination
	ReceivedBytes   uint64 `json:"received_bytes,omitempty"`
	Doorbells       uint64 `json:"doorbells,omitempty"` // rung for lanes
	Wakes           uint64 `json:"wakes,omitempty"`     // of this side's goroutines for lanes, by the neighbour's doorbells
	Rests           uint64 `json:"rests,omitempty"`     // of these while other goroutines polled
	Yields          uint64 `json:"yields,omitempty"`    // times that these gave other processes the processor
}

// Connection is an end of a connection. Count above 1 stands for several with one process, and
// then ports and counters are left out.
type Connection struct {
	Node      int    `json:"node"`    // of the process at the other end
	Process   int    `json:"process"` // its number on its host
	Count     int    `json:"count"`
	Local     string `json:"local,omitempty"`        // address of this end
	Remote    string `json:"remote,omitempty"`       // of the other end
	Read      uint64 `json:"read_bytes,omitempty"`   // by the program
	Inline    uint64 `json:"inline_bytes,omitempty"` // written within records
	MMIO      uint64 `json:"mmio_bytes,omitempty"`   // written by stores behind them
	DMA       uint64 `json:"dma_bytes,omitempty"`    // written by an engine
	Doorbells uint64 `json:"doorbells,omitempty"`    // rung because the reader slept
	ReadWaits uint64 `json:"read_parks,omitempty"`   // sleeps of a Read for data
	RoomWaits uint64 `json:"write_parks,omitempty"`  // sleeps of a Write for room
}

// Directory is a directory of this machine in which processes of a fabric meet.
type Directory struct {
	Fabric    string     `json:"fabric"`         // such as "shm:NAME"; "NAME" if no process says of which kind it is
	Node      int        `json:"node,omitempty"` // 0 where there is one host
	Directory string     `json:"directory"`
	User      string     `json:"user,omitempty"`  // its owner, if it is another user's
	Error     string     `json:"error,omitempty"` // why it cannot be used
	Processes []*Process `json:"processes"`
	Dead      []string   `json:"dead,omitempty"` // sockets of processes that have ended
}

// Fabric is a fabric of several hosts as the owners of links on this machine describe it, at about
// the same time.
type Fabric struct {
	Fabric   string `json:"fabric"` // such as "ring:NAME"
	Topology string `json:"topology"`
	Nodes    int    `json:"nodes"`
	Lanes    int    `json:"lanes"`
	// Views are the processes that answered, in the order of their nodes.
	Views []*Process `json:"views"`
	// Others are the nodes that run on other machines, as those of this one have learnt.
	Others []Host `json:"others,omitempty"`
	// Absent are the nodes that do not run, as far as those of this machine know.
	Absent []int `json:"absent,omitempty"`
	// Waiting are the absent nodes that have processes which need an owner of the
	// links, and the number of these processes.
	Waiting map[int]int `json:"waiting,omitempty"`
	// Silent are the nodes that run and gave no usable answer, with the reason.
	Silent map[int]string `json:"silent,omitempty"`
	// Wires are all links that the fabric should have. The state is "up" if both ends say so, and "absent"
	// if a node does not run. Otherwise it is what an end says that does not say "up". It is "unknown" in a
	// mesh, where both ends are of other machines.
	Wires []Link `json:"wires"`
}

// ForOthers returns what a process of another user is served, unless that is root: all but the processor
// time, the reason of a refusal, which names users, warm memory, and of connections only how many there are with
// which process.
func (p *Process) ForOthers() *Process {
	o := *p
	o.CPU, o.LastRefusal, o.Warm, o.WarmRoom, o.Connections = 0, "", 0, 0, Counted(p.Connections)
	return &o
}

// Counted returns how many connections there are with each process.
func Counted(all []Connection) (sums []Connection) {
	at := map[[2]int]int{}
	for _, c := range all {
		who := [2]int{c.Node, c.Process}
		i, ok := at[who]
		if !ok {
			i = len(sums)
			at[who] = i
			sums = append(sums, Connection{Node: c.Node, Process: c.Process})
		}
		sums[i].Count += c.Count
	}
	slices.SortFunc(sums, func(a, b Connection) int { return cmp.Or(a.Node-b.Node, a.Process-b.Process) })
	return sums
}

// Link returns the end of a wire at this process, or nil.
func (p *Process) Link(wire int) *Link {
	if i := slices.IndexFunc(p.Links, func(l Link) bool { return l.Wire == wire }); i >= 0 {
		return &p.Links[i]
	}
	return nil
}

// View returns what the owner of a node's links says, or nil if it has not answered.
func (f *Fabric) View(node int) *Process {
	if i := slices.IndexFunc(f.Views, func(v *Process) bool { return v.Node == node }); i >= 0 {
		return f.Views[i]
	}
	return nil
}
