package ring

import (
	"cmp"
	"maps"
	"slices"

	"github.com/ntbnet/ntbnet/internal/arq"
	"github.com/ntbnet/ntbnet/internal/link"
	"github.com/ntbnet/ntbnet/internal/status"
)

// TunnelInfo is a routed peer.
type TunnelInfo struct {
	Peer      link.ID
	State     arq.State
	Direction string
	Lane      int
	Epoch     uint32
	Sent      uint64 // frames, without repetitions
}

// Status returns what this process knows of the fabric: hosts, links and drops.
func (n *Node) Status() *status.Process {
	r := n.router
	s := &status.Process{
		Node: n.id.Host(), Process: n.id.Process(), Topology: r.opts.Topology.String(), Nodes: r.opts.Hosts, Lanes: r.opts.Lanes,
		Hosts: n.Hosts(), Drops: r.drops.ByReason(),
	}
	r.mu.Lock()
	links := slices.Collect(maps.Values(r.links))
	r.mu.Unlock() // in the order of locks it comes after those of the lanes
	for _, l := range links {
		s.Links = append(s.Links, l.info())
	}
	slices.SortFunc(s.Links, func(a, b status.Link) int { return cmp.Or(a.To-b.To, a.Process-b.Process) })
	return s
}

// Tunnels returns the routed peers.
func (n *Node) Tunnels() (all []TunnelInfo) {
	for _, t := range n.router.tunnels.all() {
		i := TunnelInfo{Peer: t.Remote, State: t.State(), Lane: t.laneIndex(), Epoch: t.Epoch, Sent: t.Stats().Sent}
		if l := t.via.Load(); l != nil {
			i.Direction = l.direction.String()
		}
		all = append(all, i)
	}
	return all
}

// Hosts returns what this process knows of all hosts, 1 to Options.Hosts, and the routes to the others. It changes
// when [Node.Changed] says so, and takes no lock that is held while frames are stored.
func (n *Node) Hosts() (hosts []status.Host) {
	r := n.router
	r.mu.Lock()
	defer r.mu.Unlock()
	for host := 1; host <= r.opts.Hosts; host++ {
		h := status.Host{Host: host, State: "unknown"}
		if n := r.linkStates[host]; n != nil {
			h.Process, h.Epoch = n.id.Process(), n.number
			for _, m := range n.members {
				h.Members = append(h.Members, m.Process())
			}
		}
		if r.opts.Topology != Mesh {
			h.Left, h.Right = r.linkStates[host].side(Left).String(), r.linkStates[host].side(Right).String()
		}
		link, side, hops := r.routeLocked(host, 0)
		switch {
		case host == r.host:
			h.State = "self"
		case link == nil:
			h.State = "unreachable"
		default:
			if r.linkStates[host] != nil || r.opts.Topology == Mesh {
				h.State = "up"
			}
			h.Direction, h.Hops, h.Side = link.direction.String(), hops, side.String()
			if link.direction == Direct && r.opts.Topology == Mesh {
				h.Process = link.id.Process()
			}
		}
		hosts = append(hosts, h)
	}
	return hosts
}

func (l *Link) info() status.Link {
	i := status.Link{
		Direction: l.direction.String(), From: l.router.host, To: l.id.Host(), Process: l.id.Process(), State: "up", Epoch: l.epoch,
	}
	if !l.dev.LinkUp() {
		i.State = "down"
	}
	for _, o := range l.out {
		o.mu.Lock()
		i.OwnFrames += o.stats.ownFrames
		i.OwnBytes += o.stats.ownBytes
		i.ForwardedFrames += o.stats.fwdFrames
		i.ForwardedBytes += o.stats.fwdBytes
		i.Doorbells += o.stats.doorbells
		o.mu.Unlock()
	}
	for _, in := range l.in {
		in.mu.Lock()
		i.ReceivedFrames += in.frames
		i.ReceivedBytes += in.bytes
		in.mu.Unlock()
		i.Wakes += in.wakes.Load()
		i.Rests += in.rests.Load()
		i.Yields += in.yields.Load()
	}
	return i
}
