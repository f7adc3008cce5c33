package fabric

import "github.com/ntbnet/ntbnet/ntb"

// MemHosts is where the nodes of a fabric of several hosts within this process find
// each other, for tests: they may come and go one by one.
type MemHosts struct{ hub *memHub }

// NewMemHosts is such a place without nodes. wrap may wrap each bridge, and be nil: a
// is the end of node from, b that of node to.
func NewMemHosts(wrap func(from, to int, a, b ntb.Device) (ntb.Device, ntb.Device)) *MemHosts {
	return &MemHosts{newMemHub(wrap)}
}

// Open opens the node that spec names. The spec's name does not count.
func (m *MemHosts) Open(spec *Spec, start func(*Fabric)) (*Fabric, error) {
	h, err := openMemHosts(spec, m.hub)
	if err != nil {
		return nil, err
	}
	return joinHosts(h, start)
}

// Kill takes a node's claims and makes no cables to or from its processes any more, as
// if they had died. Others may be opened in their place at once. Bridges that are there
// stay, and who opened the node closes it still.
func (m *MemHosts) Kill(node int) {
	m.hub.mu.Lock()
	defer m.hub.mu.Unlock()
	host := m.hub.hosts[node]
	if host == nil {
		return
	}
	delete(m.hub.hosts, node) // what its stations still claim, they claim there
	for _, s := range host.stations {
		s.stop()
	}
}
