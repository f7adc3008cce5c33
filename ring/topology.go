package ring

import (
	"errors"
	"fmt"

	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/tunnel"
)

// Topology is how hosts are cabled.
type Topology uint8

const (
	// Ring means that host h is cabled to h+1, and the last host to the first.
	// Every host has a right and a left neighbour. In a ring of two they are the
	// same host.
	Ring Topology = iota + 1
	// Line is a ring without the cable between the last host and the first.
	Line
	// Mesh means that every host is cabled to every other, as through a switch.
	Mesh
)

var topologyNames = [...]string{Ring: "ring", Line: "line", Mesh: "mesh"}

// String returns the name in options: "ring", "line", "mesh".
func (t Topology) String() string {
	if t >= Ring && t <= Mesh {
		return topologyNames[t]
	}
	return fmt.Sprintf("topology %d", uint8(t))
}

// Direction is where a link leads, and where a frame goes.
type Direction uint8

const (
	// Left is towards the host whose number is one less.
	Left Direction = iota
	// Right is towards the host whose number is one more.
	Right
	// Direct is the direction of the links of a mesh.
	Direct
	// Up is towards the process of this host that owns its links to other hosts.
	Up
	// Down is towards a process of this host that is reached through this one.
	Down
)

var directionNames = [...]string{Left: "left", Right: "right", Direct: "direct", Up: "up", Down: "down"}

// String returns "left", "right", "direct", "up" or "down".
func (d Direction) String() string {
	if d <= Down {
		return directionNames[d]
	}
	return fmt.Sprintf("direction %d", uint8(d))
}

// opposite returns the direction of the same link at its other end.
func (d Direction) opposite() Direction {
	switch d {
	case Left:
		return Right
	case Right:
		return Left
	case Up:
		return Down
	case Down:
		return Up
	}
	return d
}

// within reports whether a link of direction d joins two processes of one host.
func (d Direction) within() bool { return d == Up || d == Down }

// Limits of the options.
const (
	MaxLanes = 8 // lanes of a link
	MaxHosts = 65535

	// DefaultSlots and DefaultFrame are used if Options.Slots and FrameBytes are 0. A
	// record of 64 KiB with its words is one frame. Where processes share a processor, so many
	// frames keep each of them busy while it runs.
	DefaultSlots = 32
	DefaultFrame = 66 << 10

	minSlotCount  = 2
	maxSlotCount  = 1 << 12
	minFrameBytes = 256
	maxFrameBytes = 1 << 20

	defaultWindow    = 16 << 20
	defaultRetention = 2 << 20
)

// Errors of routed peers and of links.
var (
	// ErrUnreachable reports that no route leads to the process. It does not exist, or
	// the links to it are cut in every direction. sdp turns it into EHOSTUNREACH.
	ErrUnreachable = tunnel.ErrUnreachable
	// ErrMismatch reports that the two ends of a link are set up differently:
	// number of hosts, topology, lanes, slots, or position in the ring.
	ErrMismatch = errors.New("ring: the two ends of the link differ")
	// ErrUnfit reports that a bridge's windows are too small, or that it has too few
	// doorbells or scratchpads, for the lanes.
	ErrUnfit = errors.New("ring: the bridge does not do for a link")
	// ErrTooMany reports that a process has as many members as it can have.
	ErrTooMany = errors.New("ring: too many members")
	// ErrSameID reports that two processes have the same id.
	ErrSameID = errors.New("ring: two nodes have the same id")
)

// Options configure how a process takes part in a fabric of several hosts. All processes
// of a fabric must have the same Topology, Hosts, Lanes, Slots and FrameBytes.
// Links between processes that differ are refused on both sides.
type Options struct {
	// Topology is how the hosts are cabled; 0 means Ring.
	Topology Topology
	// Hosts is how many there are, at least 2. They are numbered 1 to Hosts,
	// in the order in which they are cabled; ID.Host is the number.
	Hosts int
	// Lanes is how many queues a link has in each direction, 1 to MaxLanes; 0 means
	// 1. Each has a doorbell bit and a goroutine. A tunnel stays on its lane. A
	// bridge needs Lanes+1 doorbell bits.
	Lanes int
	// Slots is how many frames a lane holds at most, at least 2; 0 means 32. In a small window it has
	// fewer, as many as leave the direct peer three quarters, but 8 if Slots is so many, or
	// 4 of two hosts.
	Slots int
	// FrameBytes is the most that one frame carries besides its header, 256 bytes
	// to 1 MiB, a multiple of 64; 0 means 66 KiB. The lanes take
	// Lanes*Slots*(FrameBytes+64) bytes of each window.
	FrameBytes int
	// Window is the size in bytes of the memory here that each routed peer gets
	// to write to, a multiple of 4096, at least MinWindow; 0 is 16 MiB. There may be
	// 1024 for each neighbour, of processes to which the route leads through it.
	Window int
	// Retention is how many bytes of frames, per routed peer, may be under way and
	// not acknowledged, at least four frames; 0 means 2 MiB or four frames. They
	// are kept to be sent again by another route.
	Retention int
	// Failover makes Peer use a tunnel for neighbours too. Then every connection
	// goes on in the other direction when a link is cut. Without it, connections to
	// a neighbour are stores through its window, and end with the link.
	Failover bool
	// Puts is compared with that of neighbours of other hosts: their devices leave out memory for heaps, or none does.
	Puts bool
	// Member makes the process a member of its host. It has no links to other hosts.
	// It reaches them over a link Up, through the one process there that has such
	// links. Topology, Hosts, Lanes, Slots and FrameBytes are those of that
	// process.
	Member bool
	// NoSpin makes a lane's worker sleep as soon as there is nothing to do, and no
	// frame wait by polling. A bubble of testing/synctest needs it, since its clock
	// stands still meanwhile.
	NoSpin bool
}

func (o Options) withDefaults() (Options, error) {
	set := func(p *int, v int) {
		if *p == 0 {
			*p = v
		}
	}
	if o.Topology == 0 {
		o.Topology = Ring
	}
	set(&o.Lanes, 1)
	set(&o.Slots, DefaultSlots)
	set(&o.FrameBytes, DefaultFrame)
	set(&o.Window, defaultWindow)
	set(&o.Retention, max(defaultRetention, 4*o.FrameBytes))
	for _, c := range []struct {
		ok   bool
		what string
		v    int
	}{
		{o.Topology <= Mesh, "topology", int(o.Topology)},
		{o.Hosts >= 2 && o.Hosts <= MaxHosts, "hosts", o.Hosts},
		{o.Lanes >= 1 && o.Lanes <= MaxLanes, "lanes", o.Lanes},
		{o.Slots >= minSlotCount && o.Slots <= maxSlotCount, "slots", o.Slots},
		{o.FrameBytes >= minFrameBytes && o.FrameBytes <= maxFrameBytes && o.FrameBytes%64 == 0, "bytes in a frame", o.FrameBytes},
		{o.Window >= link.MinWindow && o.Window <= 1<<30 && o.Window%4096 == 0, "bytes of window", o.Window},
		{o.Retention >= 4*o.FrameBytes && o.Retention <= 1<<30, "bytes of retention", o.Retention},
	} {
		if !c.ok {
			return o, fmt.Errorf("ring: option out of range: %s is %d", c.what, c.v)
		}
	}
	return o, nil
}

// neighbour returns the host to which a link of a host in direction d leads, or 0
// if there is none.
func (o *Options) neighbour(host int, d Direction) int {
	switch {
	case d == Right && host < o.Hosts:
		return host + 1
	case d == Left && host > 1:
		return host - 1
	case o.Topology != Ring || d == Direct:
		return 0
	case d == Right:
		return 1
	}
	return o.Hosts
}

// mostHops returns over how many links a frame may go: around the ring, and within
// the first host and the last.
func (o *Options) mostHops() uint16 { return uint16(min(o.Hosts+2, 1<<16-1)) }

// mostMembers returns how many members a host may have, given that its link
// state names them.
func (o *Options) mostMembers() int { return o.FrameBytes / memberBytes }

// hops returns how many links lie between two hosts in direction d, or 0 if that
// direction does not lead there.
func (o *Options) hops(from, to int, d Direction) int {
	n := to - from
	if d == Left {
		n = -n
	}
	switch {
	case o.Topology == Mesh:
		return 1
	case n < 0 && o.Topology == Ring:
		n += o.Hosts
	case n < 0:
		return 0
	}
	return n
}

// sidesTo returns both sides of a host, first the one by which it sends to another host in a
// tunnel with an epoch if both routes have as many links. The other host then sends over the
// same links. So a connection needs no more links than it must, and answers find the hosts in
// between awake. The epoch's highest bit chooses, so the tunnels of two hosts use both routes.
// A lane is chosen by the epoch too, but each route has tunnels of all lanes.
func (o *Options) sidesTo(from, to int, epoch uint32) [2]Direction {
	if (from < to) == (epoch>>31 == 0) {
		return [2]Direction{Right, Left}
	}
	return [2]Direction{Left, Right}
}
