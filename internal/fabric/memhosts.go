package fabric

import "github.com/ntbnet/ntbnet/ntb"

// MemHosts joins the nodes of a fabric of several hosts within this process, for
// tests. The nodes may come and go one by one.
type MemHosts struct{ hub *memHub }

// NewMemHosts returns a MemHosts without nodes. wrap, if not nil, may wrap each
// bridge: a is the end of node from, and b that of node to.
func NewMemHosts(wrap func(from, to int, a, b ntb.Device) (ntb.Device, ntb.Device)) *MemHosts {
	return &MemHosts{newMemHub(wrap)}
}

// Open opens the node that spec names. The spec's name is ignored.
func (m *MemHosts) Open(spec *Spec, start func(*Fabric)) (*Fabric, error) {
	h, err := openMemHosts(spec, m.hub)
	if err != nil {
		return nil, err
	}
	return joinHosts(h, start)
}

// Kill drops a node's claims, and its processes make and accept no cables any more, as
// if they had died. Others may be opened in their place at once. Existing bridges stay.
// The caller that opened the node still closes it.
func (m *MemHosts) Kill(node int) {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	host := m.hub.hosts[node]
	if host == nil {
		return
	}
	delete(m.hub.hosts, node) // the old stations keep their claims in the old host
	for _, s := range host.stations {
		s.stop()
	}
}
