package fabric

import (
	"slices"
	"time"

	"github.com/ntbnet/ntbnet/internal/greeting"
	"github.com/ntbnet/ntbnet/internal/status"
	"github.com/ntbnet/ntbnet/ring"
)

// maxListed is how many connections a process serves one by one, since an answer has a limit.
const maxListed = 2048

// Describe has f report the connections of this process to those who ask, with or without counters, and what else
// their package says. It is called before any peer can come up.
func (f *Fabric) Describe(connections func(counters bool) []status.Connection, more func(*status.Process)) {
	f.connections, f.describe = connections, more
}

// status returns what this process serves about itself, with the counters of connections or not.
func (f *Fabric) status(counters bool) *status.Process {
	p := &status.Process{}
	if r := f.ring.Load(); r != nil {
		p = r.Status()
	}
	g := f.greeting("")
	p.Node, p.Process, p.PID, p.Owner = g.Node, g.Process, g.PID, f.several() && !g.Member
	p.Topology, p.Nodes, p.Lanes = g.Topology, g.Nodes, g.Lanes
	p.Uptime, p.CPU = time.Since(f.begun).Seconds(), cpuTime()
	refused := f.refused.view()
	p.Refused, p.LastRefusal = refused.Count, refused.Last
	if f.connections != nil {
		f.describe(p)
		all := f.connections(false)
		if counters && len(all) <= maxListed {
			p.Connections = f.connections(true)
		} else {
			sums := status.Counted(all)
			p.Connections = sums[:min(len(sums), greeting.MaxPeerings)]
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var links []status.Link
	for _, l := range f.links {
		links = append(links, f.statusOf(l, p.Links))
	}
	for _, up := range p.Links {
		if m := f.members[up.Process]; m != nil && up.Direction == ring.Down.String() {
			up.PID, up.Since = m.pid, time.Since(m.since).Seconds()
			links = append(links, up)
		}
	}
	p.Links = links
	return p
}

// statusOf returns the status of a link. It takes counters and epochs from up, the links of the node
// that are up. The caller holds f.mu.
func (f *Fabric) statusOf(l *linkEnd, up []status.Link) status.Link {
	direction, state := l.direction().String(), l.shown()
	s := status.Link{From: f.spec.Node, To: l.to, Direction: direction}
	if i := slices.IndexFunc(up, func(u status.Link) bool { return u.Direction == direction && u.To == l.to }); i >= 0 && state == status.Up {
		s = up[i]
	}
	s.Wire, s.State, s.Ups, s.Since = l.wire.Number, state, l.ups, time.Since(l.since).Seconds()
	switch missing := l.by.missing(); {
	case state == status.Up:
	case missing != nil:
		s.Error = missing.Error()
	case l.err != nil:
		s.Error = l.err.Error()
	}
	return s
}
