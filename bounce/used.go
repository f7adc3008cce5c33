package bounce

// Used is what connections hold of a pool.
type Used struct {
	Pairs int // endpoints of connections
	Slots int // of the peer; each endpoint has one
	Bytes int // in queues
}

// Used returns what connections hold now. All is 0 when both sides of each are
// closed and know it.
func (p *Pool) Used() Used {
	slots := p.peer.Attached()
	p.mu.Lock()
	defer p.mu.Unlock()
	return Used{Pairs: len(p.pairs), Slots: slots, Bytes: p.blocks.used}
}
